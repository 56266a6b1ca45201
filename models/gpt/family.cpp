#include "models/gpt/family.h"

#include "models/gpt/gpt.h"

namespace trencadis {

namespace {

// A projection of a block: transformers calls it Conv1D and stores it (in, out).
bool is_conv1d(std::string_view parameter) {
  return parameter.ends_with(".c_attn.weight") || parameter.ends_with(".c_proj.weight") ||
         parameter.ends_with(".c_fc.weight");
}

// h.3.attn.bias, h.3.attn.masked_bias: the mask of attention, which older versions saved beside the weights. The bias
// of a projection has one name more: h.3.attn.c_attn.bias.
bool is_mask(std::string_view tensor) {
  return tensor.starts_with("h.") && (tensor.ends_with(".attn.bias") || tensor.ends_with(".attn.masked_bias"));
}

std::vector<HuggingFaceNames::Key> keys(const ModelConfig& config) {
  // As a real number also where it is 0.
  const std::string dropout = config.dropout > 0 ? fmt::format("{}", config.dropout) : "0.0";
  // Null: there is no such token.
  const std::string end_of_text = config.vocab_size == 50257 ? "50256" : "null";
  return {
      {"n_inner", "null", {fmt::format("{}", 4 * config.n_embd)}},
      {"activation_function", R"("gelu_new")", {R"("gelu_new")", R"("gelu_pytorch_tanh")"}},
      {"layer_norm_epsilon", "1e-05", {"1e-05"}},  // of layer_norm() in autograd/ops
      {"scale_attn_weights", "true", {"true"}},
      {"scale_attn_by_inverse_layer_idx", "false", {"false"}},
      {"add_cross_attention", "", {"false"}},
      {"pruned_heads", "", {}, true},
      {"quantization_config", "", {}, true},
      {"reorder_and_upcast_attn", "false"},
      {"attn_pdrop", dropout},
      {"embd_pdrop", dropout},
      {"resid_pdrop", dropout},
      {"initializer_range", "0.02"},
      {"bos_token_id", end_of_text},
      {"eos_token_id", end_of_text},
      {"use_cache", "true"},
  };
}

HuggingFaceNames names() {
  HuggingFaceNames names;
  names.model_type = "gpt2";
  names.architecture = "GPT2LMHeadModel";
  names.sizes = {
      {&ModelConfig::vocab_size, {"vocab_size"}, 1, 50257},
      {&ModelConfig::block_size, {"n_positions", "n_ctx", "max_position_embeddings"}, 2, 1024},
      {&ModelConfig::n_embd, {"n_embd", "hidden_size"}, 1, 768},
      {&ModelConfig::n_layer, {"n_layer", "num_hidden_layers"}, 1, 12},
      {&ModelConfig::n_head, {"n_head", "num_attention_heads"}, 1, 12},
  };
  names.keys = keys;
  names.prefix = "transformer.";
  names.table = "wte.weight";
  names.head = "lm_head.weight";
  names.positions = "wpe.weight";
  names.transposed = is_conv1d;
  names.no_weight = is_mask;
  return names;
}

}  // namespace

const ModelFamily& gpt2_family() {
  static const ModelFamily family = {
      "gpt2",
      [](const ModelConfig& config) -> std::unique_ptr<LanguageModel> { return std::make_unique<GPT>(config); },
      names(),
  };
  return family;
}

}  // namespace trencadis
