// Writing Hugging Face folders: the tensors of transformers bit for bit, the layout of the safetensors specification,
// and what happens to folders that are there already or to a disk that fills up. Whether transformers itself reads an
// export is what tests/golden/check_hugging_face.py looks at.
#include <sys/resource.h>

#include <csignal>

#include "hugging_face_folders.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

using Json = nlohmann::json;
using Errors = std::vector<std::string>;

// Exports the model of a golden folder to `to`; what each rank threw.
Errors export_golden(const std::string& name, const std::string& to, int world = 1, int stage = 0,
                     DType dtype = DType::f32) {
  const HuggingFaceModel folder(golden_folder(name));
  return on_ranks(world, [&](Communicator& comm) {
    EngineModel rank(comm, folder.config(), stage);
    rank.start_from(folder);
    export_hugging_face(rank.engine, rank.model, comm, to, dtype);
  });
}

Errors success(int world) { return Errors(static_cast<size_t>(world)); }

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

RawTensors golden_tensors(const std::string& name) {
  RawTensors all;
  for (const std::string& file : names_in(golden_folder(name)))
    if (file.ends_with(".safetensors")) all.merge(load_tensors(golden_folder(name) + "/" + file));
  return all;
}

}  // namespace

TEST_CASE("Hugging Face: an export holds the tensors of transformers, bit for bit") {
  const TempFolder temp;
  for (const char* name : {"single", "untied"}) {
    const RawTensors expected = golden_tensors(name);
    CHECK(expected.contains("lm_head.weight") == (std::string(name) == "untied"));
    for (int stage : {0, 3})
      for (int world : {1, 2, 3}) {
        CAPTURE(name);
        CAPTURE(stage);
        CAPTURE(world);
        const std::string to = temp.path(fmt::format("{}-{}-{}", name, stage, world));
        CHECK(export_golden(name, to, world, stage) == success(world));
        CHECK(names_in(to) == std::set<std::string>{"config.json", "model.safetensors"});
        CHECK(load_tensors(to + "/model.safetensors") == expected);
      }
  }
  CHECK(names_in(temp.path("")).size() == 12);  // nothing beside the exports
  // bf16 weights, exported as such; and f32 rounded to the nearest bf16.
  CHECK(export_golden("sharded", temp.path("bf16"), 2, 3, DType::bf16) == success(2));
  CHECK(load_tensors(temp.path("bf16/model.safetensors")) == golden_tensors("sharded"));
  CHECK(export_golden("single", temp.path("rounded"), 1, 0, DType::bf16) == success(1));
  const RawTensors rounded = load_tensors(temp.path("rounded/model.safetensors"));
  int64_t wrong = 0;
  for (const auto& [name, tensor] : golden_tensors("single")) {
    const Floats from = floats_of(tensor);
    for (size_t i = 0; i < from.size(); ++i) {
      uint16_t bits;
      std::memcpy(&bits, rounded.at(name).bytes.data() + 2 * i, 2);
      const float below = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
      const float spacing = std::ldexp(1.0f, std::ilogb(from[i]) - 7);
      wrong += !(std::abs(below - from[i]) <= spacing / 2);
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("Hugging Face: a matrix larger than a band, and the way back") {
  const TempFolder temp;
  ModelConfig config = {.n_layer = 1, .n_head = 2, .n_embd = 304, .block_size = 3, .vocab_size = 5};
  std::map<std::string, Floats> drawn;
  const Errors errors = on_ranks(2, [&](Communicator& comm) {
    EngineModel rank(comm, config, 3);
    rank.engine.visit_parameters([&](const Parameter& parameter, ConstView values) {
      if (comm.rank() != 0) return;
      drawn[parameter.name].resize(static_cast<size_t>(values.size));
      rank.context.copy_to_host(drawn[parameter.name].data(), values);
    });
    export_hugging_face(rank.engine, rank.model, comm, temp.path("large"));
  });
  CHECK(errors == success(2));
  const HuggingFaceModel folder(temp.path("large"));
  GPT model(folder.config());
  folder.check(model);
  for (const Parameter* p : model.parameters()) {
    CAPTURE(p->name);
    CHECK(whole(folder, *p) == drawn.at(p->name));
  }
  // Against the definition: stored[c][k] = ours[k][c].
  const Floats stored =
      floats_of(load_tensors(temp.path("large/model.safetensors")).at("transformer.h.0.mlp.c_fc.weight"));
  const Floats& ours = drawn.at("h.0.mlp.c_fc.weight");
  int64_t wrong = 0;
  for (size_t k = 0; k < 1216; ++k)
    for (size_t c = 0; c < 304; ++c) wrong += stored[c * 1216 + k] != ours[k * 304 + c];
  CHECK(wrong == 0);
}

// github.com/huggingface/safetensors, "Format": 8 bytes N, little-endian; N bytes of JSON that begin with {; then the
// tensors, little-endian and row-major, at offsets that count from the end of the header and leave no hole.
TEST_CASE("Hugging Face: the bytes are those of the specification") {
  const TempFolder temp;
  CHECK(export_golden("untied", temp.path("x")) == success(1));
  const std::string bytes = file_text(temp.path("x/model.safetensors"));
  size_t n = 0;
  for (size_t i = 0; i < 8; ++i) n |= static_cast<size_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  REQUIRE(8 + n < bytes.size());
  REQUIRE(bytes[8] == '{');
  Json header = Json::parse(bytes.substr(8, n));
  CHECK(header.at("__metadata__") == Json({{"format", "pt"}}));
  header.erase("__metadata__");
  const RawTensors expected = golden_tensors("untied");
  REQUIRE(header.size() == expected.size());
  std::map<size_t, size_t> pieces;
  for (const auto& [name, tensor] : expected) {
    CAPTURE(name);
    const Json& entry = header.at(name);
    CHECK(entry.at("dtype") == "F32");
    CHECK(entry.at("shape") == Json(tensor.shape));
    const size_t begin = entry.at("data_offsets")[0], end = entry.at("data_offsets")[1];
    CHECK(bytes.substr(8 + n + begin, end - begin) == tensor.bytes);
    pieces[begin] = end;
  }
  size_t at = 0;
  for (const auto& [begin, end] : pieces) {
    CHECK(begin == at);
    at = end;
  }
  CHECK(8 + n + at == bytes.size());
}

TEST_CASE("Hugging Face: config.json of an export") {
  const TempFolder temp;
  CHECK(export_golden("untied", temp.path("x"), 1, 0, DType::bf16) == success(1));
  const Json config = file_json(temp.path("x/config.json"));
  // What transformers wrote of the same model, where the two have a key in common.
  const Json theirs = file_json(golden_folder("untied") + "/config.json");
  int common = 0;
  for (const auto& [key, value] : theirs.items()) {
    if (!config.contains(key) || key == "dtype" || key.ends_with("_pdrop")) continue;
    CAPTURE(key);
    CHECK(config.at(key) == value);
    ++common;
  }
  CHECK(common == 18);
  CHECK(config.at("dtype") == "bfloat16");
  CHECK(config.at("torch_dtype") == "bfloat16");
  CHECK(config.at("n_ctx") == 11);
  CHECK(config.at("embd_pdrop") == 0.0);

  // Tokens: bytes, GPT-2's, unknown.
  const auto exported = [&](int64_t vocab_size, float dropout) {
    const std::string to = temp.path(fmt::format("v{}", vocab_size));
    const ModelConfig c = {
        .n_layer = 1, .n_head = 1, .n_embd = 2, .block_size = 2, .vocab_size = vocab_size, .dropout = dropout};
    CHECK(on_ranks(1, [&](Communicator& comm) {
            EngineModel rank(comm, c, 0);
            export_hugging_face(rank.engine, rank.model, comm, to);
          }) == success(1));
    return file_json(to + "/config.json");
  };
  const Json bytes = exported(256, 0.1f), pairs = exported(50257, 0.2f), other = exported(99, 0);
  CHECK(contains(bytes.at("trencadis").at("tokens"), "bytes of a text"));
  CHECK(bytes.at("eos_token_id").is_null());
  CHECK(bytes.at("attn_pdrop").dump() == "0.1");
  CHECK(contains(pairs.at("trencadis").at("tokens"), "GPT-2's byte pairs"));
  CHECK(pairs.at("eos_token_id") == 50256);
  CHECK(contains(other.at("trencadis").at("tokens"), "of the token files"));
}

TEST_CASE("Hugging Face: an export replaces an earlier one, and nothing else") {
  const TempFolder temp;
  const auto errors_to = [&](const std::string& to, int world = 2) { return export_golden("single", to, world); };
  const auto refused = [&](const std::string& to, const std::string& part) {
    const Errors errors = errors_to(to);
    CHECK(errors[0] == errors[1]);  // on both ranks the same
    CHECK(contains(errors[0], "DataError: on rank 0: "));
    CHECK(contains(errors[0], part));
    CHECK(contains(error_of<DataError>([&] { check_export_folder(to); }), part));
  };
  // Folders on the way are made; a slash at the end means nothing.
  check_export_folder(temp.path("a/b/c/"));
  CHECK(names_in(temp.path("a/b")).empty());
  CHECK(errors_to(temp.path("a/b/c/")) == success(2));
  check_export_folder(temp.path("a/b/c"));
  CHECK(names_in(temp.path("a/b")) == std::set<std::string>{"c"});
  // An earlier export, and what a run that died left behind.
  temp.write("a/b/.c.unfinished/model.safetensors", "half");
  temp.write("a/b/.c.replaced/config.json", "old");
  CHECK(export_golden("untied", temp.path("a/b/c"), 2) == success(2));
  CHECK(load_tensors(temp.path("a/b/c/model.safetensors")) == golden_tensors("untied"));
  CHECK(names_in(temp.path("a/b")) == std::set<std::string>{"c"});
  // An empty folder; a link to one, which stays a link.
  std::filesystem::create_directory(temp.path("empty"));
  std::filesystem::create_directory_symlink(temp.path("empty"), temp.path("link"));
  CHECK(errors_to(temp.path("link")) == success(2));
  CHECK(std::filesystem::is_symlink(temp.path("link")));
  CHECK(names_in(temp.path("empty")).size() == 2);
  // What is not ours stays.
  temp.write("a/b/c/tokenizer.json", "{}");
  refused(temp.path("a/b/c"), "c: holds tokenizer.json, and an export replaces the whole folder");
  CHECK(names_in(temp.path("a/b/c")).size() == 3);
  std::filesystem::create_directory(temp.path("theirs"));
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy(golden_folder("single") + "/" + file, temp.path("theirs"));
  refused(temp.path("theirs"), "theirs: holds a model that was not exported from here");
  refused(temp.write("file", "text"), "file: is not a folder");
  refused(temp.path("file/x"), "file");
  refused("/", "a folder is made under this name");
  refused("", "has an empty name");
}

TEST_CASE("Hugging Face: a disk that fills up fails the export on all ranks, and the earlier one stays") {
  const TempFolder temp;
  CHECK(export_golden("single", temp.path("x")) == success(1));
  const ModelConfig config = {.n_layer = 2, .n_head = 2, .n_embd = 160, .block_size = 8, .vocab_size = 256};  // 2.7 MB
  // No file may grow beyond that; without a handler the signal would end the process.
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit old_limit;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  for (rlim_t most : {rlim_t{100}, rlim_t{1500000}, rlim_t{2600000}}) {  // config.json; in mid-visit; at the end
    CAPTURE(most);
    int stage = 0;
    for (int world : {1, 3}) {
      CAPTURE(world);
      const struct rlimit limit = {most, old_limit.rlim_max};
      REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
      const Errors errors = on_ranks(world, [&](Communicator& comm) {
        EngineModel rank(comm, config, stage);
        export_hugging_face(rank.engine, rank.model, comm, temp.path("x"));
      });
      REQUIRE(setrlimit(RLIMIT_FSIZE, &old_limit) == 0);
      for (const std::string& error : errors) {
        CHECK(error == errors[0]);
        CHECK(contains(error, "DataError: "));
        CHECK(contains(error, "File too large"));
        CHECK(contains(error, most == 100 ? "config.json: cannot be written" : "model.safetensors: cannot be written"));
      }
      CHECK(names_in(temp.path("")) == std::set<std::string>{"x"});
      CHECK(load_tensors(temp.path("x/model.safetensors")) == golden_tensors("single"));
      stage = 3;
    }
  }
  std::signal(SIGXFSZ, old_handler);
}
