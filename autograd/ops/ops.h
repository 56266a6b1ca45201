// Operations on variables: each computes forward with the context's Kernels and records how to go backward. One file
// per op, with forward and backward on one screen. Formulas stand in runtime/kernels.h. These are the fused operations of
// a transformer; tensor_ops.h, which this header brings, has the general ones.
//
// Shapes: B batch, T sequence, C channels, H heads, D head size, V vocabulary, N rows = product of all but the last
// size. Weights are (out, in), as in PyTorch. Errors: CHECK with the shapes that do not fit.
#pragma once

#include "autograd/ops/tensor_ops.h"
#include "autograd/variable.h"
#include "runtime/random.h"

namespace trencadis {

// (..., C), (K, C), (K) or undefined -> (..., K):  x w^T + bias
Variable linear(const Variable& x, const Variable& weight, const Variable& bias = {});

// (B, T, C) from ids i32 (B, T), wte (V, C), wpe (positions >= T, C):  wte[ids] + wpe[t]
Variable embedding(const Tensor& ids, const Variable& wte, const Variable& wpe);

// (..., C), (C), (C) -> (..., C)
Variable layer_norm(const Variable& x, const Variable& gamma, const Variable& beta, float eps = 1e-5f);

// The step of a pre-norm block in one pass: {x + r, layer_norm(x + r)}
struct ResidualNorm {
  Variable sum, normed;
};
ResidualNorm residual_layer_norm(const Variable& x, const Variable& r, const Variable& gamma, const Variable& beta,
                                 float eps = 1e-5f);

// (..., K), (K) -> (..., K):  gelu(x + bias), tanh form
Variable bias_gelu(const Variable& x, const Variable& bias);

// qkv (B, T, 3C), laid out as [q | k | v] along the last dimension -> (B, T, C); causal, H heads of size C/H,
// dropout on the probabilities
Variable causal_self_attention(const Variable& qkv, int64_t heads, const DropoutMask& dropout = {});

// Drops elements of (B, ...) by the mask's counters and scales the others by 1/(1-p); returns x itself when p is 0.
Variable dropout(const Variable& x, const DropoutMask& mask);

// logits (..., V), targets i32 with one entry per row, negative = ignored -> the SUM of the rows' losses, f32[1].
// For a mean seed backward with 1/count. Backward overwrites the logits' memory with their gradient if nobody else holds
// it.
// `totals` (i64[kLossWords]), if defined, is added to; the caller zeroes it.
Variable softmax_cross_entropy(const Variable& logits, const Tensor& targets, const Tensor& totals = {});

}  // namespace trencadis
