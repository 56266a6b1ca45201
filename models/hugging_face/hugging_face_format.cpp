#include "models/hugging_face/hugging_face_format.h"

#include <limits>
#include <nlohmann/json.hpp>

namespace trencadis::hugging_face {

namespace {

using Json = nlohmann::json;

constexpr double kLayerNormEpsilon = 1e-5;  // of layer_norm() in autograd/ops
constexpr const char* kOwnKey = "trencadis";

// Looks keys up and collects what is wrong with them.
class ConfigReader {
 public:
  explicit ConfigReader(const Json& config) : config_(config) {}

  // A size under its name, or under one of the names that transformers takes for the same; where it is missing,
  // transformers takes GPT-2's own.
  int64_t size(std::initializer_list<const char*> names, int64_t otherwise) {
    int64_t value = otherwise;
    const char* found = nullptr;
    for (const char* name : names) {
      const Json* json = value_of(name);
      if (!json) continue;
      constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
      if (!json->is_number_integer() || *json < 1 || *json > kMost) {
        problem(name, fmt::format("an integer from 1 to {}", kMost));
        continue;
      }
      if (found && json->get<int64_t>() != value)
        problem(name, fmt::format("{}, the value of {}, which means the same", value, found));
      if (!found) value = json->get<int64_t>();
      found = name;
    }
    return value;
  }

  bool boolean(const char* name, bool otherwise) {
    const Json* json = value_of(name);
    if (json && !json->is_boolean()) problem(name, "true, false");
    return json && json->is_boolean() ? json->get<bool>() : otherwise;
  }

  // A key that may be missing or null, and otherwise has one of these values.
  void expect(const char* name, std::initializer_list<Json> supported) {
    const Json* json = value_of(name);
    if (!json) return;
    std::string list;
    for (const Json& value : supported) {
      if (*json == value) return;
      list += (list.empty() ? "" : ", ") + value.dump();
    }
    problem(name, list);
  }

  void expect_missing(const char* name) {
    const Json* json = value_of(name);
    if (json && !(json->is_structured() && json->empty())) problem(name, "a model without it");
  }

  void epsilon(const char* name) {
    const Json* json = value_of(name);
    if (!json) return;
    // As floats: 1e-05 may have passed through one.
    if (!json->is_number() || json->get<float>() != static_cast<float>(kLayerNormEpsilon))
      problem(name, Json(kLayerNormEpsilon).dump());
  }

  const std::string& problems() const { return problems_; }

 private:
  // Null if the key is missing or its value is null.
  const Json* value_of(const char* name) const {
    const auto found = config_.find(name);
    return found == config_.end() || found->is_null() ? nullptr : &*found;
  }

  void problem(const char* name, const std::string& supported) {
    problems_ += fmt::format("\n  {} is {}; supported: {}", name, config_.at(name).dump(), supported);
  }

  const Json& config_;
  std::string problems_;
};

// What the numbers of the vocabulary stand for, as far as its size tells.
const char* tokens_of(int64_t vocab_size) {
  switch (vocab_size) {
    case 256:
      return "the bytes of a text (UTF-8), 0 to 255: needs no tokenizer";
    case 50257:
      return "GPT-2's byte pairs: the tokenizer of openai-community/gpt2";
    default:
      return "those of the token files that the model was trained on";
  }
}

}  // namespace

bool is_conv1d(std::string_view parameter) {
  return parameter.ends_with(".c_attn.weight") || parameter.ends_with(".c_proj.weight") ||
         parameter.ends_with(".c_fc.weight");
}

Shape stored_shape(const std::string& parameter, const Shape& ours) {
  return is_conv1d(parameter) ? Shape{ours[1], ours[0]} : ours;
}

GPTConfig parse_config(const std::string& text, const std::string& path) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    throw DataError(fmt::format("{}: is not a JSON object; save the folder again with save_pretrained()", path));
  ConfigReader reader(json);
  reader.expect("model_type", {"gpt2"});
  GPTConfig config;
  config.n_layer = reader.size({"n_layer", "num_hidden_layers"}, 12);
  config.n_head = reader.size({"n_head", "num_attention_heads"}, 12);
  config.n_embd = reader.size({"n_embd", "hidden_size"}, 768);
  config.block_size = reader.size({"n_positions", "max_position_embeddings", "n_ctx"}, 1024);
  config.vocab_size = reader.size({"vocab_size"}, 50257);
  config.tied = reader.boolean("tie_word_embeddings", true);
  reader.expect("n_inner", {4 * config.n_embd});
  reader.expect("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  reader.epsilon("layer_norm_epsilon");
  reader.expect("scale_attn_weights", {true});
  reader.expect("scale_attn_by_inverse_layer_idx", {false});
  reader.expect("add_cross_attention", {false});
  reader.expect_missing("pruned_heads");
  reader.expect_missing("quantization_config");
  std::string problems = reader.problems();
  if (config.n_embd % config.n_head != 0)
    problems += fmt::format("\n  n_embd is {}; supported: a multiple of n_head, {}", config.n_embd, config.n_head);
  if (!problems.empty()) throw DataError(fmt::format("{}: describes another model than this GPT:{}", path, problems));
  return config;
}

std::string config_text(const GPTConfig& config, DType dtype) {
  const char* type = dtype == DType::bf16 ? "bfloat16" : "float32";
  const double dropout = std::stod(fmt::format("{}", config.dropout));  // 0.1, not the double nearest to 0.1f
  nlohmann::ordered_json end_of_text;                                   // null: there is no such token
  if (config.vocab_size == 50257) end_of_text = 50256;
  const nlohmann::ordered_json json = {
      {"architectures", {"GPT2LMHeadModel"}},
      {"model_type", "gpt2"},
      {"vocab_size", config.vocab_size},
      {"n_positions", config.block_size},
      {"n_ctx", config.block_size},
      {"n_embd", config.n_embd},
      {"n_layer", config.n_layer},
      {"n_head", config.n_head},
      {"n_inner", nullptr},
      {"activation_function", "gelu_new"},
      {"layer_norm_epsilon", kLayerNormEpsilon},
      {"scale_attn_weights", true},
      {"scale_attn_by_inverse_layer_idx", false},
      {"reorder_and_upcast_attn", false},
      {"tie_word_embeddings", config.tied},
      {"attn_pdrop", dropout},
      {"embd_pdrop", dropout},
      {"resid_pdrop", dropout},
      {"initializer_range", 0.02},
      {"bos_token_id", end_of_text},
      {"eos_token_id", end_of_text},
      {"use_cache", true},
      {"torch_dtype", type},  // transformers up to 4.55
      {"dtype", type},        // and since
      {kOwnKey, {{"version", TRENCADIS_VERSION}, {"tokens", tokens_of(config.vocab_size)}}},
  };
  return json.dump(2) + "\n";
}

bool is_own_config(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains(kOwnKey);
}

}  // namespace trencadis::hugging_face
