// Causal attention: checks, and the launches of the kernels in attention_kernels.cuh. runtime/cpu/attention.cpp is the
// readable reference. Forward is rung 3 of the ladder (ladder/attention.h).
//
// A kernel is made for a bound of the head size (32, 64, 128); smaller heads are filled with zeros in shared memory only.
#include "runtime/cuda/attention_arrays.h"
#include "runtime/cuda/attention_kernels.cuh"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/ladder/attention.h"

namespace trencadis {

namespace {

using attention_tiles::kBackwardRows;
using attention_tiles::kBackwardShared;
using attention_tiles::kBlockRows;
using attention_tiles::kForwardRows;
using attention_tiles::kForwardShared;
using attention_tiles::kThreads;

// Blocks for all tiles of `rows` rows of `heads` heads.
unsigned blocks(const AttentionShape& s, int64_t heads, int64_t rows) {
  return exact_blocks(s.B * heads * divide_up(s.T, rows));
}

template <typename T, int kD>
void forward(const AttentionArrays<T>& a, const AttentionShape& shape, cudaStream_t stream) {
  constexpr int kR = kForwardRows<kD>;
  launch(stream, blocks(shape, shape.H, kBlockRows<kR>), kThreads, sizeof(float) * kForwardShared<kR, kD>,
         attention_forward_kernel<T, kR, kD>, a.o, a.lse, a.q, a.k, a.v, attention_sizes(a, shape));
}

template <typename T, int kD>
void backward(const AttentionArrays<const T>& a, const AttentionGradients<T>& g, float* delta,
              const AttentionShape& shape, cudaStream_t stream) {
  constexpr int kR = kBackwardRows<kD>;
  constexpr size_t kShared = sizeof(float) * kBackwardShared<kR, kD>;
  AttentionSizes s = attention_sizes(a, shape);
  s.vectors = s.vectors && aligned16(g.d_o, g.dq, g.dk, g.dv);
  const int64_t rows = shape.B * shape.H * shape.T;
  launch(stream, exact_blocks(divide_up(rows, kThreads / kWarp)), kThreads, 0, attention_delta_kernel<T>, delta, g.d_o,
         a.o, rows, s);
  launch(stream, blocks(shape, shape.H, kBlockRows<kR>), kThreads, kShared, attention_dq_kernel<T, kR, kD>, g.dq, g.d_o,
         a.lse, delta, a.q, a.k, a.v, s);
  launch(stream, blocks(shape, shape.H_kv, kBlockRows<kR>), kThreads, kShared, attention_dkv_kernel<T, kR, kD>, g.dk,
         g.dv, g.d_o, a.lse, delta, a.q, a.k, a.v, s);
}

}  // namespace

void ladder::attention_fast(cudaStream_t stream, Allocator&, View o, View lse, ConstView q, ConstView k, ConstView v,
                            const AttentionShape& s) {
  check_attention("attention", s);
  dispatch_float("attention", o.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto arrays = attention_arrays<T, View>("attention", o, lse, q, k, v, s);
    if (s.B * s.T == 0) return;
    dispatch_head(s.D, [&](auto bound) { forward<T, bound()>(arrays, s, stream); });
  });
}

void CudaKernels::attention(View o, View lse, ConstView q, ConstView k, ConstView v, const AttentionShape& s) {
  ladder::attention_fast(stream_, scratch_, o, lse, q, k, v, s);
}

void CudaKernels::attention_backward(View dq, View dk, View dv, ConstView d_o, ConstView o, ConstView lse, ConstView q,
                                     ConstView k, ConstView v, const AttentionShape& s) {
  const char* kernel = "attention_backward";
  check_attention(kernel, s);
  dispatch_float(kernel, dq.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto arrays = attention_arrays<const T, ConstView>(kernel, o, lse, q, k, v, s);
    AttentionGradients<T> gradients;
    gradients.dq = head_array<T>(kernel, "dq", dq, s, s.H, s.q_stride);
    gradients.dk = head_array<T>(kernel, "dk", dk, s, s.H_kv, s.k_stride);
    gradients.dv = head_array<T>(kernel, "dv", dv, s, s.H_kv, s.v_stride);
    gradients.d_o = head_array<T>(kernel, "d_o", d_o, s, s.H, s.o_stride);
    if (s.B * s.T == 0) return;
    Scratch<float> delta(scratch_, s.B * s.H * s.T);
    dispatch_head(s.D, [&](auto bound) { backward<T, bound()>(arrays, gradients, delta.data(), s, stream_); });
  });
}

}  // namespace trencadis
