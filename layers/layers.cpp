#include "layers/layers.h"

namespace trencadis {

namespace {
constexpr float kWeightStddev = 0.02f;  // GPT-2's
}

Linear::Linear(int64_t in, int64_t out, Initialiser weight_start, bool with_bias) {
  add_parameter("weight", weight, {out, in}, weight_start);
  if (with_bias) add_parameter("bias", bias, {out}, Initialiser::zeros());
}

LayerNorm::LayerNorm(int64_t channels) {
  add_parameter("weight", weight, {channels}, Initialiser::ones());
  add_parameter("bias", bias, {channels}, Initialiser::zeros());
}

Embedding::Embedding(int64_t rows, int64_t channels, Initialiser start) {
  add_parameter("weight", weight, {rows, channels}, start);
}

DropoutMask Dropout::mask(const ForwardState& state) const {
  DropoutMask mask;
  mask.probability = state.training ? probability_ : 0.0f;
  mask.seed = state.seed;
  mask.step = state.step;
  mask.site = hash_name(full_name());
  mask.first_sample = state.first_sample;
  return mask;
}

CausalSelfAttention::CausalSelfAttention(const BlockConfig& config)
    : c_attn(config.channels, 3 * config.channels, Initialiser::normal(kWeightStddev)),
      c_proj(config.channels, config.channels, Initialiser::normal(config.residual_stddev)),
      heads_(config.heads),
      attn_dropout_(config.dropout),
      resid_dropout_(config.dropout) {
  add_child("c_attn", c_attn);
  add_child("c_proj", c_proj);
  add_child("attn_dropout", attn_dropout_);
  add_child("resid_dropout", resid_dropout_);
}

Variable CausalSelfAttention::forward(const Variable& x, const ForwardState& state) const {
  const Variable qkv = c_attn.forward(x);                                            // (B, T, 3C)
  const Variable y = causal_self_attention(qkv, heads_, attn_dropout_.mask(state));  // (B, T, C)
  return resid_dropout_.forward(c_proj.forward(y), state);                           // (B, T, C)
}

MLP::MLP(const BlockConfig& config)
    : c_fc(config.channels, 4 * config.channels, Initialiser::normal(kWeightStddev)),
      c_proj(4 * config.channels, config.channels, Initialiser::normal(config.residual_stddev)),
      dropout_(config.dropout) {
  add_child("c_fc", c_fc);
  add_child("c_proj", c_proj);
  add_child("dropout", dropout_);
}

Variable MLP::forward(const Variable& x, const ForwardState& state) const {
  const Variable hidden = bias_gelu(c_fc.product(x), c_fc.bias.variable);  // (B, T, 4C)
  return dropout_.forward(c_proj.forward(hidden), state);                  // (B, T, C)
}

Block::Block(const BlockConfig& config) : ln_1(config.channels), attn(config), ln_2(config.channels), mlp(config) {
  add_child("ln_1", ln_1);
  add_child("attn", attn);
  add_child("ln_2", ln_2);
  add_child("mlp", mlp);
}

Variable Block::forward(const Variable& x, const ForwardState& state) const {
  const Variable attended = attn.forward(ln_1.forward(x), state);
  const auto [y, normed] = ln_2.forward_residual(x, attended);
  return add(y, mlp.forward(normed, state));
}

}  // namespace trencadis
