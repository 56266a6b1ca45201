// The CPU's Kernels: readable, vectorised, threaded; the reference of their CUDA twins. One file per group of kernels:
// elementwise.cpp, matmul.cpp, embedding.cpp, layer_norm.cpp, gelu.cpp, attention.cpp, dropout.cpp, cross_entropy.cpp,
// norm.cpp, optimizer.cpp; general.cpp, fold.cpp, softmax.cpp. f32 only, but for copy and cast.
#pragma once

#include "runtime/cpu/product.h"
#include "runtime/kernels.h"
#include "runtime/thread_pool.h"

namespace trencadis {

class CpuKernels final : public Kernels {
 public:
  explicit CpuKernels(ThreadPool& pool) : pool_(pool) {}

  void zero(View x) override;
  void copy(View y, ConstView x) override;
  void cast(View y, ConstView x) override;
  void add(View y, ConstView x) override;
  void add(View y, ConstView a, ConstView b) override;
  void fill(View x, float value) override;
  void normal(View x, float stddev, uint64_t key, int64_t first) override;

  void matmul(View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K, bool trans_a, bool trans_b,
              bool accumulate) override;
  void linear(View y, ConstView x, ConstView w, ConstView bias, int64_t N, int64_t C, int64_t K) override;
  void bias_backward(View db, ConstView dy, int64_t N, int64_t K, bool accumulate) override;

  void embedding(View y, ConstView ids, ConstView wte, ConstView wpe, int64_t B, int64_t T, int64_t C,
                 int64_t V) override;
  void embedding_backward(View dwte, View dwpe, ConstView ids, ConstView dy, int64_t B, int64_t T, int64_t C, int64_t V,
                          int64_t positions, bool accumulate_wte, bool accumulate_wpe) override;

  void layer_norm(View y, View mean, View rstd, ConstView x, ConstView gamma, ConstView beta, int64_t N, int64_t C,
                  float eps) override;
  void residual_layer_norm(View s, View y, View mean, View rstd, ConstView x, ConstView r, ConstView gamma,
                           ConstView beta, int64_t N, int64_t C, float eps) override;
  void layer_norm_backward(View dx, View dgamma, View dbeta, ConstView dy, ConstView x, ConstView mean, ConstView rstd,
                           ConstView gamma, ConstView dresidual, int64_t N, int64_t C, bool accumulate) override;

  void bias_gelu(View y, ConstView x, ConstView bias, int64_t N, int64_t K) override;
  void bias_gelu_backward(View dx, View dbias, ConstView dy, ConstView x, ConstView bias, int64_t N, int64_t K,
                          bool accumulate) override;

  void attention(View o, View lse, ConstView q, ConstView k, ConstView v, const AttentionShape& shape) override;
  void attention_backward(View dq, View dk, View dv, ConstView d_o, ConstView o, ConstView lse, ConstView q,
                          ConstView k, ConstView v, const AttentionShape& shape) override;

  void dropout(View y, ConstView x, int64_t B, int64_t n, const DropoutMask& mask) override;

  void softmax_cross_entropy(View loss, View lse, View totals, ConstView logits, ConstView targets, int64_t N,
                             int64_t V) override;
  void softmax_cross_entropy_backward(View logits, ConstView lse, ConstView targets, ConstView dloss, int64_t N,
                                      int64_t V) override;

  void unary(View y, ConstView x, Unary op) override;
  void unary_backward(View dx, ConstView dy, ConstView saved, Unary op) override;
  void binary(View y, ConstView a, ConstView b, Binary op, const Loop& loop) override;
  void binary_backward(View d, ConstView dy, ConstView a, ConstView b, Binary op, int operand,
                       const Loop& loop) override;
  void reduce(View y, ConstView x, Reduce op, const Axis& axis) override;
  void reduce_backward(View dx, ConstView dy, ConstView x, ConstView y, Reduce op, const Axis& axis) override;
  void softmax(View y, ConstView x, bool logarithm, const Axis& axis) override;
  void softmax_backward(View dx, ConstView dy, ConstView y, bool logarithm, const Axis& axis) override;
  void copy_strided(View y, ConstView x, const Loop& loop) override;
  void batched_matmul(View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K, bool trans_a, bool trans_b,
                      const Loop& batch) override;

  void max_abs(View out, ConstView x) override;
  void sum_squares(View out, ConstView x, ConstView max_bits) override;

  void adamw(View param, View master, View m, View v, ConstView grad, const AdamWStep& step) override;
  void sgd(View param, View master, View u, ConstView grad, const SgdStep& step) override;

 private:
  ThreadPool& pool_;
  Workspace workspace_;  // of matrix products
};

}  // namespace trencadis
