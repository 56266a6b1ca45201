// Reading Hugging Face folders: the logits of transformers, every range of every layout, exact conversion, and errors
// that name all that is wrong. Writing: test_hugging_face_export.cpp.
#include <bit>
#include <cmath>

#include "hugging_face_folders.h"
#include "models/trainer/initial_weights.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

using Json = nlohmann::json;

std::string open_error(const std::string& path) {
  return error_of<DataError>([&] { HuggingFaceModel{path}; });
}

// Of checking the folder against the model that its own config.json describes, or one changed from it.
std::string check_error(const std::string& path, const std::function<void(ModelConfig&)>& change = nullptr) {
  const HuggingFaceModel folder(path);
  ModelConfig config = folder.config();
  if (change) change(config);
  GPT model(config);
  return error_of<DataError>([&] { folder.check(model); });
}

std::string config_error(const TempFolder& temp, const std::function<void(Json&)>& change) {
  return open_error(changed_folder(temp, "changed", [&](RawTensors&, Json& config) { change(config); }));
}

double largest_difference(const Floats& got, const Json& expected) {
  double worst = 0;
  size_t i = 0;
  for (const Json& sequence : expected)
    for (const Json& row : sequence)
      for (const Json& x : row) worst = std::max(worst, std::abs(static_cast<double>(got.at(i++)) - x.get<double>()));
  REQUIRE(i == got.size());
  return worst;
}

}  // namespace

TEST_CASE("Hugging Face: the logits of transformers, from each kind of folder") {
  for (const char* name : {"single", "sharded", "untied", "bare"}) {
    CAPTURE(name);
    LoadedModel loaded(golden_folder(name));
    const ModelConfig& config = loaded.folder.config();
    CHECK(config.n_layer == (std::string(name) == "untied" ? 1 : 2));
    CHECK(config.n_head == 4);
    CHECK(config.n_embd == 20);
    CHECK(config.block_size == 11);
    CHECK(config.vocab_size == 37);
    CHECK(config.tied == (std::string(name) != "untied"));
    CHECK(config.dropout == 0);
    const Json expected = file_json(golden_folder(name) + "/expected.json");
    CHECK(largest_difference(loaded.logits(expected.at("ids")), expected.at("logits")) < 1e-5);
  }
}

TEST_CASE("Hugging Face: any range of a parameter, transposed or not") {
  const TempFolder temp;
  // A value is its index in the file, which f32 holds exactly. c_fc.weight, (C, 4C), has 369664 elements: more than a
  // band.
  const int64_t C = 304, K = 4 * C;
  std::vector<float> counting(static_cast<size_t>(C * K));
  for (size_t i = 0; i < counting.size(); ++i) counting[i] = static_cast<float>(i);
  const std::string path = changed_folder(temp, "large", [&](RawTensors& tensors, Json& config) {
    config["n_embd"] = C;
    config["n_layer"] = 1;
    tensors.clear();
    tensors["transformer.h.0.mlp.c_fc.weight"] = raw("F32", {C, K}, counting);
  });
  const HuggingFaceModel folder(path);
  Parameter parameter;
  parameter.name = "h.0.mlp.c_fc.weight";
  parameter.shape = {K, C};
  std::vector<std::pair<int64_t, int64_t>> ranges = {{0, C * K}, {0, 1},     {C * K - 1, 1},  {5, 0},
                                                     {C - 1, 2}, {7 * C, C}, {7 * C + 3, 10}, {C + 1, C * K - C - 1}};
  for (int64_t first = 0; first < C * K; first += 54321)
    ranges.emplace_back(first, std::min<int64_t>(54321, C * K - first));
  for (const auto& [first, count] : ranges) {
    CAPTURE(first);
    CAPTURE(count);
    Floats out(static_cast<size_t>(count) + 1, -1);  // one more, that must stay
    folder.read(parameter, first, std::span(out).first(static_cast<size_t>(count)));
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t k = (first + i) / C, c = (first + i) % C;
      wrong += out[static_cast<size_t>(i)] != static_cast<float>(c * K + k);
    }
    CHECK(wrong == 0);
    CHECK(out.back() == -1);
  }

  // As it lies: a slice of the table, in f32, bf16 and f16.
  for (const char* name : {"single", "sharded", "bare"}) {
    const HuggingFaceModel golden(golden_folder(name));
    GPT model(golden.config());
    const Floats table = whole(golden, model.wte.weight);
    Floats part(101);
    golden.read(model.wte.weight, 57, part);
    CHECK(part == Floats(table.begin() + 57, table.begin() + 57 + 101));
  }
}

TEST_CASE("Hugging Face: every value of f16 and bf16 converts exactly") {
  const TempFolder temp;
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const std::string path = changed_folder(temp, "half", [&](RawTensors& tensors, Json& config) {
    config["vocab_size"] = 4096, config["n_positions"] = 4096, config["n_embd"] = 16, config["n_layer"] = 1;
    tensors.clear();
    tensors["transformer.wte.weight"] = raw("F16", {4096, 16}, all);
    tensors["transformer.wpe.weight"] = raw("BF16", {4096, 16}, all);
  });
  const HuggingFaceModel folder(path);
  GPT model(folder.config());
  const Floats f16 = whole(folder, model.wte.weight), bf16s = whole(folder, model.wpe.weight);
  int64_t wrong = 0;
  for (uint32_t i = 0; i < 65536; ++i) {
    // IEEE-754: (-1)^s 2^(e-15) (1 + m/1024); e = 0: (-1)^s 2^-14 m/1024; e = 31: infinite, or NaN with its payload.
    const uint32_t s = i >> 15, e = (i >> 10) & 31, m = i & 1023;
    const uint32_t got = std::bit_cast<uint32_t>(f16[i]);
    if (e == 31) {
      wrong += got != (s << 31 | 0x7f800000u | m << 13);
    } else {
      const double value = e == 0 ? std::ldexp(m, -24) : std::ldexp(1024 + m, static_cast<int>(e) - 25);
      wrong += got != std::bit_cast<uint32_t>(static_cast<float>(s ? -value : value));
    }
    wrong += std::bit_cast<uint32_t>(bf16s[i]) != i << 16;
  }
  CHECK(wrong == 0);
}

TEST_CASE("Hugging Face: a value that is not finite is refused on all ranks, with file, tensor, element and value") {
  const TempFolder temp;
  // Of starting a training from the folder, as the trainer does.
  const auto start_error = [](const std::string& path, int world, int stage) {
    const std::vector<std::string> errors = on_ranks(world, [&](Communicator& comm) {
      EngineModel rank(comm, HuggingFaceModel(path).config(), stage);
      load_initial_weights(path, rank.model, rank.engine, rank.context, comm);
    });
    for (const std::string& error : errors) CHECK(error == errors[0]);
    return errors[0];
  };
  CHECK(start_error(golden_folder("single"), 1, 0) == "");
  CHECK(start_error(golden_folder("sharded"), 2, 3) == "");

  const auto with = [&](const std::string& tensor, size_t element, float value) {
    return changed_folder(temp, "not_finite", [&](RawTensors& tensors, Json&) {
      std::memcpy(tensors.at(tensor).bytes.data() + 4 * element, &value, sizeof value);
    });
  };
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  for (const auto& [world, stage] : {std::pair{1, 0}, {2, 1}, {3, 3}}) {
    CAPTURE(world);
    std::string path = with("transformer.h.1.mlp.c_fc.bias", 7, nan);
    const std::string error = start_error(path, world, stage);
    CHECK(error.starts_with("DataError: "));
    CHECK(contains(error, path + "/model.safetensors: transformer.h.1.mlp.c_fc.bias[7] is nan: a training cannot start "
                                 "from values that are not finite"));
    // (20, 80) in the file, (80, 20) here: the indices are the file's.
    path = with("transformer.h.0.mlp.c_fc.weight", 3 * 80 + 11, -inf);
    CHECK(contains(start_error(path, world, stage), "transformer.h.0.mlp.c_fc.weight[3,11] is -inf"));
    path = with("transformer.wte.weight", 36 * 20 + 19, inf);
    CHECK(contains(start_error(path, world, stage), "transformer.wte.weight[36,19] is inf"));
  }

  // Every kind of 16-bit number, and a shard.
  const auto half = [&](const std::string& dtype, uint16_t value) {
    return changed_folder(temp, "half", [&](RawTensors& tensors, Json&) {
      std::vector<uint16_t> values(20, 0x3c00);
      values[4] = value;
      tensors["transformer.ln_f.weight"] = raw(dtype, {20}, values);
    });
  };
  for (const auto& [dtype, value, text] : {std::tuple{"F16", 0x7c00, "inf"},
                                           {"F16", 0xfc00, "-inf"},
                                           {"F16", 0x7c01, "nan"},
                                           {"F16", 0x7bff, ""},
                                           {"BF16", 0x7f80, "inf"},
                                           {"BF16", 0xff80, "-inf"},
                                           {"BF16", 0x7fc0, "nan"},
                                           {"BF16", 0x7f7f, ""}}) {
    const std::string error = start_error(half(dtype, static_cast<uint16_t>(value)), 2, 3);
    CAPTURE(dtype);
    CAPTURE(value);
    CHECK(std::string(text).empty() == error.empty());
    if (!error.empty()) CHECK(contains(error, fmt::format("transformer.ln_f.weight[4] is {}:", text)));
  }
  const std::string shards = temp.path("shards"), third = shards + "/model-00003-of-00003.safetensors";
  std::filesystem::copy(golden_folder("sharded"), shards);
  std::filesystem::permissions(third, std::filesystem::perms::owner_all);
  RawTensors tensors = load_tensors(third);
  RawTensor& first = tensors.begin()->second;
  const bool narrow = first.dtype != "F32";  // then the upper half of the NaN is element 1
  std::memcpy(first.bytes.data(), &nan, sizeof nan);
  save_tensors(third, tensors);
  CHECK(contains(start_error(shards, 2, 3), fmt::format("{}: {}[{}] is nan", third, tensors.begin()->first, +narrow)));
}

TEST_CASE("Hugging Face: every rank reads what it holds, at each stage") {
  const HuggingFaceModel folder(golden_folder("untied"));
  GPT described(folder.config());
  std::map<std::string, Floats> expected;
  for (const Parameter* p : described.parameters()) expected[p->name] = whole(folder, *p);
  for (int stage : {0, 1, 2, 3})
    for (int world : {1, 3}) {
      CAPTURE(stage);
      CAPTURE(world);
      std::vector<std::map<std::string, Floats>> got(static_cast<size_t>(world));
      const std::vector<std::string> errors = on_ranks(world, [&](Communicator& comm) {
        EngineModel rank(comm, folder.config(), stage);
        rank.start_from(folder);
        rank.engine.visit_parameters([&](const Parameter& parameter, ConstView values) {
          Floats& out = got[static_cast<size_t>(comm.rank())][parameter.name];
          out.resize(static_cast<size_t>(values.size));
          rank.context.copy_to_host(out.data(), values);
        });
      });
      CHECK(errors == std::vector<std::string>(static_cast<size_t>(world)));
      for (const auto& of_rank : got) CHECK(of_rank == expected);
    }
}

TEST_CASE("Hugging Face: the head, tied, beside the table, and apart") {
  const TempFolder temp;
  const auto untie = [](ModelConfig& config) { config.tied = false; };
  // An untied model from a tied folder: the head is a copy.
  ModelConfig apart = HuggingFaceModel(golden_folder("single")).config();
  apart.tied = false;
  LoadedModel loaded(golden_folder("single"), apart);
  CHECK(loaded.model.lm_head->weight.variable.value().to_vector() ==
        loaded.model.wte.weight.variable.value().to_vector());
  const Json expected = file_json(golden_folder("single") + "/expected.json");
  CHECK(largest_difference(loaded.logits(expected.at("ids")), expected.at("logits")) < 1e-5);

  // A tied folder that holds the head as well.
  const std::string twice = changed_folder(temp, "twice", [](RawTensors& tensors, Json&) {
    tensors["lm_head.weight"] = tensors.at("transformer.wte.weight");
  });
  CHECK(check_error(twice) == "");
  CHECK(check_error(twice, untie) == "");
  const std::string other = changed_folder(temp, "other", [](RawTensors& tensors, Json&) {
    tensors["lm_head.weight"] = tensors.at("transformer.wte.weight");
    tensors["lm_head.weight"].bytes.back() ^= 1;
  });
  CHECK(contains(check_error(other), "lm_head.weight differs from wte.weight, although tie_word_embeddings is true"));
  LoadedModel head_of_its_own(other, apart);
  const Floats head = head_of_its_own.model.lm_head->weight.variable.value().to_vector();
  CHECK(head == floats_of(load_tensors(other + "/model.safetensors").at("lm_head.weight")));

  // An untied folder.
  CHECK(contains(check_error(golden_folder("untied"), [](ModelConfig& config) { config.tied = true; }),
                 "lm_head.weight is apart from the table; give --untied"));
  const std::string headless =
      changed_folder(temp, "headless", [](RawTensors&, Json& config) { config["tie_word_embeddings"] = false; });
  CHECK(contains(check_error(headless), "lm_head.weight is missing"));
}

TEST_CASE("Hugging Face: a tied table under its name, as the head, or as both") {
  const TempFolder temp;
  // A golden folder whose table stands under other names: with and without "transformer.", and in shards.
  const auto arranged = [&](const std::string& source, bool table, bool head,
                            const std::function<void(RawTensor&)>& change) {
    const std::string path = temp.path("arranged");
    std::filesystem::remove_all(path);
    std::filesystem::copy(golden_folder(source), path);
    for (const auto& file : std::filesystem::directory_iterator(path))
      std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    const std::string name = source == "bare" ? "wte.weight" : "transformer.wte.weight";
    std::string file = "model.safetensors";
    const std::string index_path = path + "/model.safetensors.index.json";
    if (source == "sharded") {
      Json index = file_json(index_path);
      Json& map = index.at("weight_map");
      file = map.at(name);
      if (head) map["lm_head.weight"] = file;
      if (!table) map.erase(name);
      temp.write("arranged/model.safetensors.index.json", index.dump());
    }
    RawTensors tensors = load_tensors(path + "/" + file);
    if (head) change(tensors["lm_head.weight"] = tensors.at(name));
    if (!table) tensors.erase(name);
    save_tensors(path + "/" + file, tensors);
    return path;
  };
  const auto same = [](RawTensor&) {};
  const auto untie = [](ModelConfig& config) { config.tied = false; };
  for (const char* source : {"single", "bare", "sharded"}) {
    CAPTURE(source);
    const Json expected = file_json(golden_folder(source) + "/expected.json");
    for (const auto& [table, head] : {std::pair{false, true}, {true, false}, {true, true}}) {
      CAPTURE(table);
      CAPTURE(head);
      const std::string path = arranged(source, table, head, same);
      CHECK(check_error(path) == "");
      LoadedModel loaded(path);
      CHECK(loaded.folder.config().tied);
      CHECK(largest_difference(loaded.logits(expected.at("ids")), expected.at("logits")) < 1e-5);
      ModelConfig apart = loaded.folder.config();
      untie(apart);
      LoadedModel copied(path, apart);  // the head starts as the table, whichever of them is there
      CHECK(largest_difference(copied.logits(expected.at("ids")), expected.at("logits")) < 1e-5);
      // Every rank its own slice.
      CHECK(on_ranks(3, [&](Communicator& comm) {
              EngineModel rank(comm, loaded.folder.config(), 3), original(comm, loaded.folder.config(), 3);
              rank.start_from(HuggingFaceModel(path));
              original.start_from(HuggingFaceModel(golden_folder(source)));
              if (rank.engine.digest() != original.engine.digest()) throw Error("another model");
            }) == std::vector<std::string>(3));
    }
    const std::string differs = arranged(source, true, true, [](RawTensor& head) { head.bytes[0] ^= 1; });
    CHECK(
        contains(check_error(differs), "lm_head.weight differs from wte.weight, although tie_word_embeddings is true"));
    const std::string neither = check_error(arranged(source, false, false, same));
    CHECK(contains(neither, "wte.weight is missing, and so is lm_head.weight, which would do: they are tied"));
    const std::string narrow = check_error(arranged(source, false, true, [](RawTensor& head) {
      head.dtype = "F64", head.bytes.assign(static_cast<size_t>(8 * head.shape[0] * head.shape[1]), 0);
    }));
    CHECK(contains(narrow, "lm_head.weight has type F64"));
  }
  // Not tied, the head is no table.
  const std::string apart = arranged("single", false, true, same);
  Json config = file_json(apart + "/config.json");
  config["tie_word_embeddings"] = false;
  temp.write("arranged/config.json", config.dump());
  const std::string error = check_error(apart);
  CHECK(contains(error, "\n  wte.weight is missing"));
  CHECK(error.find("which would do") == std::string::npos);
}

TEST_CASE("Hugging Face: shorter sequences need the first positions only") {
  ModelConfig config = HuggingFaceModel(golden_folder("single")).config();
  config.block_size = 4;
  LoadedModel loaded(golden_folder("single"), config);
  const Json expected = file_json(golden_folder("single") + "/expected.json");
  auto ids = expected.at("ids").get<std::vector<std::vector<int32_t>>>();
  Json logits = expected.at("logits");
  for (size_t b = 0; b < ids.size(); ++b) {
    ids[b].resize(4);
    logits[b].erase(logits[b].begin() + 4, logits[b].end());  // attention is causal: these are the same
  }
  CHECK(largest_difference(loaded.logits(ids), logits) < 1e-5);
  const auto longer = [](ModelConfig& c) { c.block_size = 12; };
  CHECK(contains(check_error(golden_folder("single"), longer), "wpe.weight has shape (11,20), expected (12,20)"));
}

TEST_CASE("Hugging Face: one error names every difference from the model") {
  const TempFolder temp;
  const std::string path = changed_folder(temp, "wrong", [](RawTensors& tensors, Json&) {
    tensors.erase("transformer.h.0.attn.c_attn.bias");
    tensors.erase("transformer.ln_f.weight");
    tensors["transformer.h.0.attn.bias"] = raw("U8", {1, 1, 2, 2}, std::vector<uint8_t>(4));  // a mask: no difference
    tensors["transformer.h.1.attn.masked_bias"] = raw("F32", {}, Floats(1));
    tensors["transformer.h.2.ln_1.weight"] = raw("F32", {20}, Floats(20));
    tensors["score.weight"] = raw("F32", {2, 20}, Floats(40));
    tensors["transformer.h.1.mlp.c_fc.weight"].shape = {80, 20};  // as this project has it
    tensors["transformer.wpe.weight"] = raw("F64", {11, 20}, std::vector<double>(220));
  });
  const std::string error = check_error(path, [](ModelConfig& config) { config.n_head = 5; });
  CHECK(error == path +
                     ": its weights are not those of this model:\n"
                     "  n_head is 4, the model's is 5\n"
                     "  wpe.weight has type F64; supported: F32, BF16, F16\n"
                     "  h.0.attn.c_attn.bias is missing\n"
                     "  h.1.mlp.c_fc.weight has shape (80,20), expected (20,80)\n"
                     "  ln_f.weight is missing\n"
                     "  h.2.ln_1.weight is not of this model\n"
                     "  score.weight is not of this model");
  const std::string sizes = check_error(golden_folder("single"), [](ModelConfig& config) {
    config.vocab_size = 256;
    config.n_layer = 3;
  });
  CHECK(contains(sizes, "wte.weight has shape (37,20), expected (256,20)"));
  CHECK(contains(sizes, "h.2.ln_1.weight is missing"));
  CHECK(check_error(golden_folder("single")) == "");
}

TEST_CASE("Hugging Face: config.json that this GPT cannot express") {
  const TempFolder temp;
  const std::string error = config_error(temp, [](Json& config) {
    config["activation_function"] = "relu";
    config["layer_norm_epsilon"] = 1e-6;
    config["n_inner"] = 64;
    config["scale_attn_weights"] = false;
    config["scale_attn_by_inverse_layer_idx"] = true;
    config["add_cross_attention"] = true;
    config["tie_word_embeddings"] = "yes";
    config["quantization_config"] = {{"bits", 4}};
    config["pruned_heads"] = {{"0", {1}}};
    config["n_positions"] = 0;
    config["vocab_size"] = 2.5;
    config["n_head"] = 3;
  });
  for (const char* part :
       {"/changed/config.json: describes another model",
        R"(activation_function is "relu"; supported: "gelu_new", "gelu_pytorch_tanh")",
        "layer_norm_epsilon is 1e-06; supported: 1e-05", "n_inner is 64; supported: 80",
        "scale_attn_weights is false; supported: true", "scale_attn_by_inverse_layer_idx is true; supported: false",
        "add_cross_attention is true; supported: false", R"(tie_word_embeddings is "yes"; supported: true, false)",
        R"(quantization_config is {"bits":4}; supported: a model without it)", "pruned_heads is",
        "n_positions is 0; supported: an integer from 1 to 2147483647", "vocab_size is 2.5; supported: an integer",
        "n_embd is 20; supported: a multiple of n_head, 3"})
    CHECK(contains(error, part));

  // Of another family there is nothing more to say.
  CHECK(contains(config_error(temp, [](Json& c) { c["model_type"] = "llama"; }),
                 R"(describes another model: model_type is "llama"; supported: "gpt2")"));
  CHECK(config_error(temp, [](Json& c) { c.erase("model_type"); }) == "");
  CHECK(
      contains(config_error(temp, [](Json& c) { c["n_ctx"] = 12; }), "n_ctx is 12; supported: 11, the value of n_pos"));
  CHECK(contains(config_error(temp, [](Json& c) { c["n_layer"] = 1000000; }), "n_layer is 1000000, but the weights"));
  CHECK(contains(config_error(temp, [](Json& c) { c = Json::array(); }), "is not a JSON object"));
  // What means the same, or changes nothing.
  CHECK(config_error(temp, [](Json& config) {
          config["hidden_size"] = config["n_embd"], config.erase("n_embd");
          config["max_position_embeddings"] = config["n_positions"], config.erase("n_positions");
          config["n_inner"] = 80;
          config["activation_function"] = "gelu_pytorch_tanh";
          config["layer_norm_epsilon"] = static_cast<double>(1e-5f);
          config["pruned_heads"] = Json::object();
          config.erase("tie_word_embeddings");
          config["torch_dtype"] = "float16";
          config["attn_pdrop"] = 0.3;
          config["unknown"] = {1, 2};
        }) == "");
  // GPT-2's own sizes, where transformers has them from its defaults.
  const HuggingFaceModel bare(changed_folder(temp, "bare", [](RawTensors&, Json& c) { c = Json::object(); }));
  CHECK(bare.config().n_layer == 12);
  CHECK(bare.config().n_embd == 768);
  CHECK(bare.config().block_size == 1024);
  CHECK(bare.config().vocab_size == 50257);
}

TEST_CASE("Hugging Face: folders that are not whole") {
  const TempFolder temp;
  CHECK(contains(open_error("openai-community/gpt2"), "is not a folder; give one with config.json and model.safetens"));
  const std::string config = file_text(golden_folder("single") + "/config.json");
  const std::string path = temp.path("folder");
  std::filesystem::create_directories(path);
  CHECK(contains(open_error(path), "config.json: cannot be read"));
  temp.write("folder/config.json", "");
  CHECK(contains(open_error(path), "config.json: is not a JSON object"));
  temp.write("folder/config.json", config.substr(0, 100));
  CHECK(contains(open_error(path), "config.json: is not a JSON object"));
  temp.write("folder/config.json", config);
  CHECK(contains(open_error(path), "has neither model.safetensors nor model.safetensors.index.json; save the model"));
  temp.write("folder/pytorch_model.bin", "PK");
  CHECK(contains(open_error(path), "its pytorch_model.bin is not read"));
  temp.write("folder/model.safetensors", "short");
  CHECK(contains(open_error(path), "model.safetensors: "));

  const std::string both = changed_folder(
      temp, "both", [](RawTensors& tensors, Json&) { tensors["ln_f.bias"] = tensors.at("transformer.ln_f.bias"); });
  CHECK(contains(open_error(both), "holds ln_f.bias twice, once with 'transformer.' in front"));
}

TEST_CASE("Hugging Face: shards that are not what the index lists") {
  const TempFolder temp;
  const auto shards = [&](const std::function<void(Json&)>& change) {
    const std::string path = temp.path("shards");
    std::filesystem::remove_all(path);
    std::filesystem::copy(golden_folder("sharded"), path);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    Json index = file_json(path + "/model.safetensors.index.json");
    change(index);
    temp.write("shards/model.safetensors.index.json", index.dump());
    return path;
  };
  const std::string second = "model-00002-of-00003.safetensors";
  const auto unchanged = [](Json&) {};
  CHECK(open_error(shards(unchanged)) == "");

  std::string path = shards(unchanged);
  std::filesystem::remove(path + "/" + second);
  CHECK(contains(open_error(path), second + " is missing, with transformer.h.0.mlp.c_proj.bias, "));

  const std::string error = open_error(shards([&](Json& index) {
    index["weight_map"]["transformer.h.0.ln_9.weight"] = second;
    index["weight_map"].erase("transformer.h.1.ln_1.bias");
  }));
  CHECK(contains(error, "transformer.h.0.ln_9.weight is not in " + second));
  CHECK(contains(error, "transformer.h.1.ln_1.bias is in " + second + " without being listed"));

  for (const Json& escape : {Json("../single/model.safetensors"), Json("/etc/passwd"), Json(7)})
    CHECK(contains(open_error(shards([&](Json& index) { index["weight_map"]["transformer.wte.weight"] = escape; })),
                   "which is not the name of a file of this folder"));
  CHECK(contains(open_error(shards([](Json& index) { index = {{"metadata", 1}}; })), "JSON object with a weight_map"));
  path = shards(unchanged);
  temp.write("shards/model.safetensors.index.json", "{");
  CHECK(contains(open_error(path), "JSON object with a weight_map"));
}
