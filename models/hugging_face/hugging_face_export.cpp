// Writing a Hugging Face folder.
//
//   .DIR.unfinished/{config.json, model.safetensors}   written and synced by rank 0
//   DIR -> .DIR.replaced, if there is one; .DIR.unfinished -> DIR; then .DIR.replaced is removed
//
// Who looks at DIR sees the old export, for a moment none, or the new one, never a part of one.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "dist/on_all_ranks.h"
#include "models/families.h"
#include "models/hugging_face/hugging_face.h"
#include "models/hugging_face/hugging_face_format.h"
#include "zero/checkpoint/durable.h"

namespace trencadis {

namespace hf = hugging_face;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kBand = 1 << 18;  // elements that are converted and written at a time

// Throws what the system says about `path`.
[[noreturn]] void file_error(const fs::path& path, const char* what, int error) {
  throw DataError(fmt::format("{}: {}: {}; check path, permissions and space, or give another folder", path.string(),
                              what, std::strerror(error)));
}

void check_done(const fs::path& path, const char* what, const std::error_code& error) {
  if (error) file_error(path, what, error.value());
}

// Throws what failed, if anything did.
void check_done(const fs::path& path, const FileFailure& failure) {
  if (failure) file_error(path, failure.what, failure.error);
}

// Where things go: beside each other, so that a rename stays within one file system.
struct Places {
  fs::path folder, unfinished, replaced;

  explicit Places(const std::string& name) {
    if (name.empty()) throw DataError("the folder to export to has an empty name; give one");
    std::error_code error;
    folder = fs::weakly_canonical(name, error);  // through links: what they point to is replaced, not they
    check_done(name, "is no path", error);
    if (!folder.has_filename()) folder = folder.parent_path();  // DIR/
    folder = fs::absolute(folder);                              // so that it has a parent
    if (!folder.has_filename())
      throw DataError(fmt::format("{}: a folder is made under this name; give another", name));
    const auto beside = [&](const char* what) {
      return folder.parent_path() / fmt::format(".{}.{}", folder.filename().string(), what);
    };
    unfinished = beside("unfinished");
    replaced = beside("replaced");
  }
};

// Nothing is lost by replacing an export by the next. Anything else stays.
void check_replaceable(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found) return;
  check_done(folder, "cannot be looked at", error);
  if (!fs::is_directory(status))
    throw DataError(fmt::format("{}: is not a folder; give another folder", folder.string()));
  std::string others;
  bool any = false;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    any = true;
    if (name != hf::kConfigFile && name != hf::kWeightsFile) others += (others.empty() ? "" : ", ") + name;
  }
  check_done(folder, "cannot be looked at", error);
  if (!others.empty())
    throw DataError(
        fmt::format("{}: holds {}, and an export replaces the whole folder; give another folder, or remove it",
                    folder.string(), others));
  if (!any) return;
  std::ifstream config(folder / hf::kConfigFile, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(config), {}};
  if (!hf::is_own_config(text))
    throw DataError(fmt::format("{}: holds a model that was not exported from here; give another folder, or remove it",
                                folder.string()));
}

void make_unfinished(const Places& places) {
  std::error_code error;
  fs::create_directories(places.folder.parent_path(), error);
  check_done(places.folder.parent_path(), "cannot be made", error);
  fs::remove_all(places.unfinished, error);  // of a run that died
  check_done(places.unfinished, "is left of an earlier run and cannot be removed", error);
  fs::create_directory(places.unfinished, error);
  check_done(places.unfinished, "cannot be made", error);
}

const HuggingFaceNames& names_of(const LanguageModel& model) {
  return model_family(model.config().family).hugging_face;
}

std::string stored_name(const HuggingFaceNames& names, const std::string& parameter) {
  return parameter == names.head ? parameter : names.prefix + parameter;
}

// Tensors lie in the file in the order in which the engine shows them: that of their names.
std::vector<SafetensorsEntry> entries_of(LanguageModel& model, DType dtype) {
  const HuggingFaceNames& names = names_of(model);
  std::vector<const Parameter*> parameters;
  for (const Parameter* parameter : model.parameters()) parameters.push_back(parameter);
  std::sort(parameters.begin(), parameters.end(),
            [](const Parameter* a, const Parameter* b) { return a->name < b->name; });
  std::vector<SafetensorsEntry> entries;
  for (const Parameter* parameter : parameters) {
    SafetensorsEntry& entry = entries.emplace_back();
    entry.name = stored_name(names, parameter->name);
    entry.dtype = dtype == DType::bf16 ? "BF16" : "F32";
    const Shape shape = hf::stored_shape(names, parameter->name, parameter->shape);
    entry.shape.assign(shape.begin(), shape.end());
  }
  return entries;
}

// The folder under way, on rank 0. Unless finish() has returned, it goes away again.
class FolderWriter {
 public:
  FolderWriter(const Places& places, LanguageModel& model, DType dtype, Context& context)
      : places_(places), names_(names_of(model)), dtype_(dtype), context_(context) {
    check_replaceable(places_.folder);
    make_unfinished(places_);
    try {
      check_done(places_.unfinished / hf::kConfigFile,
                 write_synced(places_.unfinished / hf::kConfigFile, hf::config_text(model.config(), dtype)));
      weights_ = std::make_unique<SafetensorsWriter>(places_.unfinished / hf::kWeightsFile, entries_of(model, dtype),
                                                     SafetensorsMetadata{{"format", "pt"}});
    } catch (...) {
      remove_unfinished();
      throw;
    }
  }
  ~FolderWriter() { remove_unfinished(); }
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;

  void append(const Parameter& parameter, ConstView values) {
    CHECK(values.dtype == DType::f32, "{} is {}, expected f32", parameter.name, name_of(values.dtype));
    if (names_.transposed(parameter.name)) {
      append_transposed(parameter, values);
      return;
    }
    for (int64_t done = 0; done < values.size; done += kBand) {
      band_.resize(static_cast<size_t>(std::min(kBand, values.size - done)));
      context_.copy_to_host(band_.data(), values.slice(done, static_cast<int64_t>(band_.size())));
      append_band();
    }
  }

  void finish() {
    weights_->finish();
    weights_.reset();
    check_done(places_.unfinished, sync_folder(places_.unfinished));
    std::error_code error;
    const bool replaces = fs::exists(places_.folder, error);
    if (replaces) {
      fs::remove_all(places_.replaced, error);
      if (!error) fs::rename(places_.folder, places_.replaced, error);
      check_done(places_.folder, "cannot be replaced", error);
    }
    fs::rename(places_.unfinished, places_.folder, error);
    if (error && replaces) {
      std::error_code ignored;  // the first error says more
      fs::rename(places_.replaced, places_.folder, ignored);
    }
    check_done(places_.folder, "cannot be made", error);
    finished_ = true;
    check_done(places_.folder.parent_path(), sync_folder(places_.folder.parent_path()));
    if (replaces) fs::remove_all(places_.replaced, error);
  }

 private:
  void remove_unfinished() {
    weights_.reset();
    std::error_code ignored;
    if (!finished_) fs::remove_all(places_.unfinished, ignored);
  }

  // Ours (K, C), in the file (C, K): a band of rows there is a band of columns here.
  void append_transposed(const Parameter& parameter, ConstView values) {
    const int64_t K = parameter.shape[0], C = parameter.shape[1];
    matrix_.resize(static_cast<size_t>(values.size));
    context_.copy_to_host(matrix_.data(), values);
    const int64_t most_rows = std::max<int64_t>(1, kBand / K);
    for (int64_t c = 0, rows = 0; c < C; c += rows) {
      rows = std::min(most_rows, C - c);
      band_.resize(static_cast<size_t>(rows * K));
      for (int64_t k = 0; k < K; ++k)
        for (int64_t r = 0; r < rows; ++r)
          band_[static_cast<size_t>(r * K + k)] = matrix_[static_cast<size_t>(k * C + c + r)];
      append_band();
    }
  }

  void append_band() {
    if (dtype_ == DType::f32) {
      weights_->append(band_.data(), static_cast<int64_t>(band_.size() * sizeof(float)));
      return;
    }
    narrow_.resize(band_.size());
    std::transform(band_.begin(), band_.end(), narrow_.begin(), [](float x) { return bf16(x); });
    weights_->append(narrow_.data(), static_cast<int64_t>(narrow_.size() * sizeof(bf16)));
  }

  const Places places_;
  const HuggingFaceNames& names_;
  const DType dtype_;
  Context& context_;
  std::unique_ptr<SafetensorsWriter> weights_;
  std::vector<float> band_, matrix_;
  std::vector<bf16> narrow_;
  bool finished_ = false;
};

}  // namespace

void check_export_folder(const std::string& folder) {
  const Places places(folder);
  check_replaceable(places.folder);
  make_unfinished(places);
  std::error_code ignored;
  fs::remove_all(places.unfinished, ignored);
}

void export_hugging_face(ZeroEngine& engine, LanguageModel& model, Communicator& world, const std::string& folder,
                         DType dtype) {
  CHECK(dtype == DType::f32 || dtype == DType::bf16, "a folder of {}; choose f32 or bf16", name_of(dtype));
  const bool chief = world.rank() == 0;
  std::unique_ptr<FolderWriter> writer;
  on_all_ranks(world, [&] {
    if (chief) writer = std::make_unique<FolderWriter>(Places(folder), model, dtype, engine.runtime().context);
  });
  // The visit is collective: when rank 0 can no longer write, it still takes part until all have seen everything.
  std::exception_ptr failure;
  engine.visit_parameters([&](const Parameter& parameter, ConstView values) {
    if (!chief || failure) return;
    try {
      writer->append(parameter, values);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  on_all_ranks(world, [&] {
    if (failure) std::rethrow_exception(failure);
    if (chief) writer->finish();
  });
}

}  // namespace trencadis
