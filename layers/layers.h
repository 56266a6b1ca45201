// The layers of a GPT. Each owns its parameters and is one screen of forward code; backward comes from autograd.
// Shapes: B batch, T sequence, C channels, K output features. Weights are (out, in).
#pragma once

#include <cmath>

#include "autograd/ops/ops.h"
#include "layers/module.h"

namespace trencadis {

// (..., C) -> (..., K)
class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, Initialiser weight_start, bool with_bias = true);
  // Weights as spread as PyTorch's, 1/sqrt(3 in); biases zero.
  Linear(int64_t in, int64_t out)
      : Linear(in, out, Initialiser::normal(1 / std::sqrt(3.0f * static_cast<float>(in)))) {}
  Variable forward(const Variable& x) const { return linear(x, weight.variable, bias.variable); }
  // Without the bias, for a kernel that adds it itself.
  Variable product(const Variable& x) const { return linear(x, weight.variable); }

  Parameter weight, bias;  // (K, C), (K) or undefined
};

// (..., C) -> (..., C)
class LayerNorm : public Module {
 public:
  explicit LayerNorm(int64_t channels);
  Variable forward(const Variable& x) const { return layer_norm(x, weight.variable, bias.variable); }
  // {x + r, norm(x + r)}
  ResidualNorm forward_residual(const Variable& x, const Variable& r) const {
    return residual_layer_norm(x, r, weight.variable, bias.variable);
  }

  Parameter weight, bias;  // (C)
};

// A table (rows, C) that is looked up.
class Embedding : public Module {
 public:
  Embedding(int64_t rows, int64_t channels, Initialiser start);
  Parameter weight;
};

// (B, ...) -> the same, some elements zero in training.
class Dropout : public Module {
 public:
  explicit Dropout(float probability) : probability_(probability) {}
  Variable forward(const Variable& x, const ForwardState& state) const { return dropout(x, mask(state)); }
  DropoutMask mask(const ForwardState& state) const;

 private:
  float probability_;
};

struct BlockConfig {
  int64_t channels = 0, heads = 0;
  float dropout = 0;
  float residual_stddev = 0.02f;  // of the two projections that feed the residual stream
};

// (B, T, C) -> (B, T, C): q, k, v from one projection, causal attention, output projection.
class CausalSelfAttention : public Module {
 public:
  explicit CausalSelfAttention(const BlockConfig& config);
  Variable forward(const Variable& x, const ForwardState& state) const;

  Linear c_attn, c_proj;

 private:
  int64_t heads_;
  Dropout attn_dropout_, resid_dropout_;
};

// (B, T, C) -> (B, T, 4C) -> (B, T, C)
class MLP : public Module {
 public:
  explicit MLP(const BlockConfig& config);
  Variable forward(const Variable& x, const ForwardState& state) const;

  Linear c_fc, c_proj;

 private:
  Dropout dropout_;
};

// Pre-norm transformer block: x + attention(norm(x)), then y + mlp(norm(y)).
class Block : public Module {
 public:
  explicit Block(const BlockConfig& config);
  Variable forward(const Variable& x, const ForwardState& state) const;

  LayerNorm ln_1;
  CausalSelfAttention attn;
  LayerNorm ln_2;
  MLP mlp;
};

}  // namespace trencadis
