#include "models/hugging_face/hugging_face.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "models/families.h"
#include "models/hugging_face/hugging_face_format.h"
#include "zero/finite.h"

namespace trencadis {

namespace hf = hugging_face;

namespace {

constexpr int64_t kBand = 1 << 18;  // elements that are read at a time where they are not wanted as they lie

template <typename... Args>
[[noreturn]] void data_error(fmt::format_string<Args...> text, Args&&... args) {
  throw DataError(fmt::format(text, std::forward<Args>(args)...));
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file && file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (!file || !text) data_error("{}: cannot be read; check path and permissions", path);
  return text.str();
}

// IEEE-754 binary16: sign, 5 bits of exponent (bias 15), 10 of mantissa. Every value is one of binary32 (bias 127, 23
// bits), so nothing rounds. Made of bits, not of arithmetic, which would quiet a signalling NaN.
uint32_t f16_to_f32_bits(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu, mantissa = half & 0x3ffu;
  if (exponent == 0x1f) return sign | 0x7f800000u | (mantissa << 13);  // infinite, or NaN with its payload
  if (exponent != 0) return sign | ((exponent + 127 - 15) << 23) | (mantissa << 13);
  if (mantissa == 0) return sign;
  // Subnormal: mantissa * 2^-24, which binary32 writes as 1.m: the leading one goes to bit 23 and drops out.
  const int shift = std::countl_zero(mantissa) - 8;
  return sign | (static_cast<uint32_t>(127 - 1 - shift) << 23) | ((mantissa << shift) & 0x7fffffu);
}

uint32_t bf16_to_f32_bits(uint16_t brain) { return static_cast<uint32_t>(brain) << 16; }

}  // namespace

// ---- the folder ----

HuggingFaceModel::HuggingFaceModel(std::string folder) : folder_(std::move(folder)) {
  if (!std::filesystem::is_directory(folder_))
    data_error("{}: is not a folder; give one with {} and {} (names on the hub are not downloaded)", folder_,
               hf::kConfigFile, hf::kWeightsFile);
  const std::string config_path = folder_ + "/" + hf::kConfigFile;
  config_ = hf::parse_config(text_of(config_path), config_path);
  names_ = &model_family(config_.family).hugging_face;
  open_files();
  list_tensors();
  // Before anybody builds as many blocks as a number in a file says.
  if (config_.n_layer > static_cast<int64_t>(tensors_.size()))
    data_error("{}: n_layer is {}, but the weights are only {} tensors; fetch or save the folder again", config_path,
               config_.n_layer, tensors_.size());
}

// As transformers has it, one file goes before an index.
void HuggingFaceModel::open_files() {
  const std::string path = folder_ + "/" + hf::kWeightsFile, index_path = folder_ + "/" + hf::kIndexFile;
  if (std::filesystem::exists(path))
    files_.emplace_back(path);
  else if (std::filesystem::exists(index_path))
    open_shards(index_path);
  else
    data_error("{}: has neither {} nor {}; {}", folder_, hf::kWeightsFile, hf::kIndexFile,
               std::filesystem::exists(folder_ + "/pytorch_model.bin")
                   ? "its pytorch_model.bin is not read: load it with transformers, and save it with save_pretrained()"
                   : "save the model there with save_pretrained()");
}

void HuggingFaceModel::open_shards(const std::string& index_path) {
  const nlohmann::json index = nlohmann::json::parse(text_of(index_path), nullptr, /*allow_exceptions=*/false);
  const char* const again = "fetch or save the folder again";
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    data_error("{}: is not a JSON object with a weight_map; {}", index_path, again);
  std::map<std::string, std::set<std::string>> names_by_file;
  for (const auto& [name, file] : index["weight_map"].items()) {
    // A name that leads out of the folder is not believed.
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos)
      data_error("{}: says that {} lies in {}, which is not the name of a file of this folder; {}", index_path, name,
                 file.dump(), again);
    names_by_file[file.get<std::string>()].insert(name);
  }
  std::string problems;
  for (const auto& [file, names] : names_by_file) {
    const std::string path = folder_ + "/" + file;
    if (!std::filesystem::exists(path)) {
      problems += fmt::format("\n  {} is missing, with {}", file, fmt::join(names, ", "));
      continue;
    }
    const SafetensorsReader& reader = files_.emplace_back(path);
    for (const std::string& name : names)
      if (!reader.find(name)) problems += fmt::format("\n  {} is not in {}", name, file);
    for (const SafetensorsEntry& entry : reader.entries())
      if (!names.contains(entry.name))
        problems += fmt::format("\n  {} is in {} without being listed", entry.name, file);
  }
  if (!problems.empty()) data_error("{}: the shards are not what it lists; {}:{}", index_path, again, problems);
}

void HuggingFaceModel::list_tensors() {
  for (size_t file = 0; file < files_.size(); ++file)
    for (const SafetensorsEntry& entry : files_[file].entries()) {
      std::string name = entry.name;
      if (name.starts_with(names_->prefix)) name.erase(0, names_->prefix.size());
      if (names_->no_weight(name)) continue;
      if (!tensors_.emplace(name, Tensor{file, &entry}).second)
        data_error("{}: holds {} twice, once with '{}' in front of it; remove one", files_[file].path(), name,
                   names_->prefix);
    }
}

// ---- against the model ----

const HuggingFaceModel::Tensors::value_type* HuggingFaceModel::find(const std::string& parameter) const {
  auto found = tensors_.find(parameter);
  // Writers keep one of two tensors that are shared, and not all of them the same one.
  if (found == tensors_.end() && config_.tied && (parameter == names_->head || parameter == names_->table))
    found = tensors_.find(parameter == names_->head ? names_->table : names_->head);
  return found == tensors_.end() ? nullptr : &*found;
}

std::string HuggingFaceModel::difference_of(const Parameter& parameter) const {
  const auto* const found = find(parameter.name);
  if (!found)
    return fmt::format("\n  {} is missing{}", parameter.name,
                       config_.tied && parameter.name == names_->table
                           ? fmt::format(", and so is {}, which would do: they are tied", names_->head)
                           : "");
  const std::string& name = found->first;
  const SafetensorsEntry& entry = *found->second.entry;
  std::string differences;
  Shape expected = hf::stored_shape(*names_, parameter.name, parameter.shape);
  const Shape stored(entry.shape.begin(), entry.shape.end());
  const bool first_positions = parameter.name == names_->positions && stored.size() == 2 && stored[0] > expected[0];
  if (first_positions) expected[0] = stored[0];  // the first rows are all that shorter sequences use
  if (stored != expected)
    differences += fmt::format("\n  {} has shape ({}), expected ({})", name, fmt::join(entry.shape, ","),
                               fmt::join(expected, ","));
  if (entry.dtype != "F32" && entry.dtype != "BF16" && entry.dtype != "F16")
    differences += fmt::format("\n  {} has type {}; supported: F32, BF16, F16", name, entry.dtype);
  return differences;
}

void HuggingFaceModel::check(LanguageModel& model) const {
  std::string differences;
  // No tensor's shape tells how it is cut into heads.
  if (model.config().n_head != config_.n_head)
    differences += fmt::format("\n  n_head is {}, the model's is {}", config_.n_head, model.config().n_head);
  std::set<std::string> wanted;
  for (const Parameter* parameter : model.parameters()) {
    wanted.insert(parameter->name);
    differences += difference_of(*parameter);
  }
  for (const auto& [name, tensor] : tensors_) {
    if (wanted.contains(name)) continue;
    if (name != names_->head) {
      differences += fmt::format("\n  {} is not of this model", name);
    } else if (!config_.tied) {
      differences += fmt::format("\n  {} is apart from the table; give --untied", name);
    } else if (!equal(tensor, find(names_->table)->second)) {  // itself, where there is no table
      differences += fmt::format("\n  {} differs from {}, although tie_word_embeddings is true; set it to false in {}",
                                 name, names_->table, hf::kConfigFile);
    }
  }
  if (!differences.empty()) data_error("{}: its weights are not those of this model:{}", folder_, differences);
}

// To the bit, so that a NaN equals itself.
bool HuggingFaceModel::equal(const Tensor& a, const Tensor& b) const {
  if (a.entry == b.entry) return true;
  if (a.entry->shape != b.entry->shape || a.entry->dtype != b.entry->dtype) return false;
  std::vector<char> left(static_cast<size_t>(kBand)), right(left.size());
  for (int64_t done = 0; done < a.entry->bytes(); done += kBand) {
    const int64_t bytes = std::min(kBand, a.entry->bytes() - done);
    files_[a.file].read(*a.entry, done, bytes, left.data());
    files_[b.file].read(*b.entry, done, bytes, right.data());
    if (std::memcmp(left.data(), right.data(), static_cast<size_t>(bytes)) != 0) return false;
  }
  return true;
}

// ---- reading ----

void HuggingFaceModel::read(const Parameter& parameter, int64_t first, std::span<float> out) const {
  const auto* const found = find(parameter.name);
  const Tensor* const tensor = found ? &found->second : nullptr;
  const auto count = static_cast<int64_t>(out.size());
  CHECK(tensor && tensor->entry->elements() >= parameter.size() && first >= 0 && first + count <= parameter.size(),
        "{}: elements [{}, {}) of {}; check() the model first", folder_, first, first + count, parameter.name);
  if (names_->transposed(parameter.name))
    read_transposed(*tensor, first, out);
  else
    read_stored(*tensor, first, count, out.data());
}

std::string HuggingFaceModel::describe(const Parameter& parameter, int64_t element, float value) const {
  const Tensor& tensor = find(parameter.name)->second;
  const Shape& shape = tensor.entry->shape;
  if (names_->transposed(parameter.name)) element = element % shape[0] * shape[1] + element / shape[0];
  return fmt::format("{}: {}", files_[tensor.file].path(), describe_element(tensor.entry->name, shape, element, value));
}

void HuggingFaceModel::read_stored(const Tensor& tensor, int64_t first, int64_t count, float* out) const {
  const SafetensorsReader& file = files_[tensor.file];
  if (tensor.entry->dtype == "F32") {
    file.read(*tensor.entry, first * 4, count * 4, out);
    return;
  }
  // The 16-bit values go to the second half of the memory and are widened front to back: value i is read before its
  // bytes, or those of a later one, are written over.
  auto* const bytes = reinterpret_cast<unsigned char*>(out);
  const unsigned char* const narrow = bytes + 2 * count;
  file.read(*tensor.entry, first * 2, count * 2, bytes + 2 * count);
  const auto widen = tensor.entry->dtype == "F16" ? f16_to_f32_bits : bf16_to_f32_bits;
  for (int64_t i = 0; i < count; ++i) {
    uint16_t value;
    std::memcpy(&value, narrow + 2 * i, sizeof value);
    const uint32_t wide = widen(value);
    std::memcpy(bytes + 4 * i, &wide, sizeof wide);
  }
}

// Ours is (K, C), the file holds (C, K). The wanted elements lie in rows [k0, k1) of ours: in as many columns of the
// file, which are read a band of rows at a time.
//
//            k0   k1                     c
//       +----------------+ K        +---------+ C
//       |    |////|      |       k0 |  ///////|     a band of the file becomes columns c, c+1, ... of ours;
//     c |====|====|======|          |/////////|     of rows k0 and k1 - 1, out may hold a part
//       |    |////|      |       k1 |////     |
//     C +----------------+        K +---------+
void HuggingFaceModel::read_transposed(const Tensor& tensor, int64_t first, std::span<float> out) const {
  const int64_t C = tensor.entry->shape[0], K = tensor.entry->shape[1];
  const auto count = static_cast<int64_t>(out.size());
  const int64_t k0 = first / C, k1 = (first + count + C - 1) / C, width = k1 - k0;
  const int64_t most_rows = std::max<int64_t>(1, kBand / std::max<int64_t>(1, width));
  std::vector<float> band;
  for (int64_t c = 0, rows = 0; c < C; c += rows) {
    rows = std::min(most_rows, C - c);
    band.resize(static_cast<size_t>(rows * width));
    if (width == K)
      read_stored(tensor, c * K, rows * K, band.data());
    else
      for (int64_t r = 0; r < rows; ++r) read_stored(tensor, (c + r) * K + k0, width, band.data() + r * width);
    for (int64_t k = k0; k < k1; ++k) {
      const int64_t at = k * C + c - first;  // of our element (k, c), in out; may lie outside
      const int64_t last = std::min(rows, count - at);
      for (int64_t r = std::max<int64_t>(0, -at); r < last; ++r)
        out[static_cast<size_t>(at + r)] = band[static_cast<size_t>(r * width + k - k0)];
    }
  }
}

}  // namespace trencadis
