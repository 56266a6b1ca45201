// Layer norm backward, first rung: the formula, one thread an output row or column.
//
// What is wrong with it. Thread n of a warp reads row n: 32 threads read 32 addresses C apart, each from a cache line
// of its own, of which one number is used at a time. And there are as many threads as rows, then as many as columns: a
// few hundred, on a processor that hides its memory's latency with tens of thousands.
#include "runtime/cuda/ladder/layer_norm_backward_arrays.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

constexpr int kBlock = 128;

// One thread a row.
template <typename T>
__global__ void __launch_bounds__(kBlock) naive_dx_kernel(LayerNormBackwardArrays<T> a) {
  const int64_t n = grid_thread();
  if (n >= a.N) return;
  const float mean = a.mean[n], rstd = a.rstd[n];
  float mean_g = 0, mean_g_xh = 0;
  for (int64_t c = 0; c < a.C; ++c) {
    const float xh = (to_float(a.x[n * a.C + c]) - mean) * rstd;
    const float g = to_float(a.gamma[c]) * to_float(a.dy[n * a.C + c]);
    mean_g += g;
    mean_g_xh += g * xh;
  }
  mean_g /= static_cast<float>(a.C);
  mean_g_xh /= static_cast<float>(a.C);
  for (int64_t c = 0; c < a.C; ++c) {
    const int64_t i = n * a.C + c;
    const float xh = (to_float(a.x[i]) - mean) * rstd;
    const float g = to_float(a.gamma[c]) * to_float(a.dy[i]);
    float d = rstd * (g - mean_g - xh * mean_g_xh);
    if (a.dresidual) d += to_float(a.dresidual[i]);
    a.dx[i] = from_float<T>(d);
  }
}

// One thread a column.
template <typename T>
__global__ void __launch_bounds__(kBlock) naive_parameters_kernel(LayerNormBackwardArrays<T> a) {
  const int64_t c = grid_thread();
  if (c >= a.C) return;
  float dgamma = 0, dbeta = 0;
  for (int64_t n = 0; n < a.N; ++n) {
    const float d = to_float(a.dy[n * a.C + c]);
    dgamma += d * ((to_float(a.x[n * a.C + c]) - a.mean[n]) * a.rstd[n]);
    dbeta += d;
  }
  if (a.dgamma) a.dgamma[c] = from_float<T>(a.accumulate ? to_float(a.dgamma[c]) + dgamma : dgamma);
  if (a.dbeta) a.dbeta[c] = from_float<T>(a.accumulate ? to_float(a.dbeta[c]) + dbeta : dbeta);
}

}  // namespace

void layer_norm_backward_naive(cudaStream_t stream, Allocator&, const LayerNormBackward& call) {
  dispatch_float("layer_norm_backward", call.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const LayerNormBackwardArrays<T> arrays(call);
    launch(stream, exact_blocks(divide_up(call.N, kBlock)), kBlock, 0, naive_dx_kernel<T>, arrays);
    launch(stream, exact_blocks(divide_up(call.C, kBlock)), kBlock, 0, naive_parameters_kernel<T>, arrays);
  });
}

}  // namespace trencadis
