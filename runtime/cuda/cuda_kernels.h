// The GPU's Kernels: hand-written CUDA, each beside its launch; the CPU kernel of the same name is the readable
// reference. One file per group: elementwise.cu, matmul.cu, embedding.cu, layer_norm.cu, gelu.cu, attention.cu,
// dropout.cu, cross_entropy.cu, norm.cu, optimizer.cu; general.cu, fold.cu, softmax.cu.
//
// Types: activations, parameters and their gradients are f32 or bf16, all of one call alike; what is computed in
// between, and mean, rstd, lse, losses, masters and moments, is f32. A call returns when its kernels are in the stream.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "runtime/allocator.h"
#include "runtime/cuda/attention_choice.h"
#include "runtime/cuda/handles.h"
#include "runtime/kernels.h"

namespace trencadis {

class CudnnAttention;

class CudaKernels final : public Kernels {
 public:
  // stream: on which everything is launched; products: a cuBLAS handle set to that stream; scratch: device memory in the
  // order of that stream, so that a block may be freed as soon as the last kernel that uses it is launched. All must
  // outlive this.
  CudaKernels(cudaStream_t stream, CublasHandle& products, Allocator& scratch,
              AttentionChoice attention = AttentionChoice::native);
  ~CudaKernels() override;

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
  template <typename Call>
  bool by_cudnn(const char* kernel, DType dtype, Call&& call);

  cudaStream_t stream_;
  CublasHandle& products_;
  Allocator& scratch_;
  const AttentionChoice attention_;
  std::unique_ptr<CudnnAttention> cudnn_;  // made when first wanted: cuDNN takes long to load
};

}  // namespace trencadis
