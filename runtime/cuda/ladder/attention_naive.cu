// Rung 1 of attention: the formula, step by step, with every score in global memory.
//
//   scores (B,H,T,T) = scale q k^T     a thread a score, j <= i only
//   softmax in place                   a warp a row; lse; dropout
//   o = p v                            a thread an element of o
//
// T^2 numbers for each head are written once and read three times: at T = 1024 and D = 64 that is eight times what
// q, k, v and o are together, and it is the memory, more than the time, that ends long sequences.
#include "runtime/cuda/attention_arrays.h"
#include "runtime/cuda/ladder/attention.h"
#include "runtime/cuda/reduce.cuh"

namespace trencadis {

namespace {

constexpr int kBlock = 128;

template <typename T>
__global__ void __launch_bounds__(kBlock)
    scores_kernel(float* scores, const T* q, const T* k, int64_t rows, AttentionSizes s) {
  for (int64_t at = grid_thread(); at < rows * s.T; at += grid_threads()) {
    const int64_t row = at / s.T, i = row % s.T, j = at % s.T;  // row: (b, h, i)
    if (j > i) continue;
    const int64_t h = row / s.T % s.H, b = row / s.T / s.H;
    const T* query = q + s.at(s.q_stride, b, i, h);
    const T* key = k + s.at(s.k_stride, b, j, h / (s.H / s.H_kv));
    float score = 0;
    for (int d = 0; d < s.D; ++d) score = fmaf(to_float(query[d]), to_float(key[d]), score);
    scores[at] = score * s.scale;
  }
}

__global__ void __launch_bounds__(kBlock) softmax_kernel(float* scores, float* lse, int64_t rows, AttentionSizes s) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kBlock / kWarp) + threadIdx.x / kWarp;
  if (row >= rows) return;  // all lanes of a warp
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t i = row % s.T, h = row / s.T % s.H, b = row / s.T / s.H;
  float* score = scores + row * s.T;
  float most = -INFINITY;
  for (int64_t j = lane; j <= i; j += kWarp) most = fmaxf(most, score[j]);
  most = warp_max(most);
  float sum = 0;
  for (int64_t j = lane; j <= i; j += kWarp) sum += __expf(score[j] - most);
  const float log_sum = most + logf(warp_sum(sum));
  for (int64_t j = lane; j <= i; j += kWarp)
    score[j] = __expf(score[j] - log_sum) * (s.masked ? s.keep(b, h, i, j) : 1.0f);
  if (lane == 0) lse[row] = log_sum;
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    values_kernel(T* o, const float* probabilities, const T* v, int64_t rows, AttentionSizes s) {
  for (int64_t at = grid_thread(); at < rows * s.D; at += grid_threads()) {
    const int64_t row = at / s.D, d = at % s.D;
    const int64_t i = row % s.T, h = row / s.T % s.H, b = row / s.T / s.H;
    float sum = 0;
    for (int64_t j = 0; j <= i; ++j)
      sum = fmaf(probabilities[row * s.T + j], to_float(v[s.at(s.v_stride, b, j, h / (s.H / s.H_kv)) + d]), sum);
    o[s.at(s.o_stride, b, i, h) + d] = from_float<T>(sum);
  }
}

}  // namespace

void attention_naive(cudaStream_t stream, Allocator& scratch, View o, View lse, ConstView q, ConstView k, ConstView v,
                     const AttentionShape& shape) {
  check_attention("attention_naive", shape);
  dispatch_float("attention_naive", o.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto a = attention_arrays<T, View>("attention_naive", o, lse, q, k, v, shape);
    const AttentionSizes s = attention_sizes(a, shape);
    const int64_t rows = shape.B * shape.H * shape.T;
    const Scratch<float> scores(scratch, rows * shape.T);
    launch(stream, stride_blocks(rows * shape.T, kBlock), kBlock, 0, scores_kernel<T>, scores.data(), a.q, a.k, rows,
           s);
    launch(stream, exact_blocks(divide_up(rows, kBlock / kWarp)), kBlock, 0, softmax_kernel, scores.data(), a.lse, rows,
           s);
    launch(stream, stride_blocks(rows * shape.D, kBlock), kBlock, 0, values_kernel<T>, a.o, scores.data(), a.v, rows,
           s);
  });
}

}  // namespace trencadis
