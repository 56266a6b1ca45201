// Layer norm backward, second rung: threads that stand next to each other read what lies next to each other.
//
// dx: one warp a row. Lane l has columns l, l + 32, ...: each load of the warp is one piece of 128 bytes. The two means
// are folded over the lanes by shuffles. dgamma, dbeta: a block has 32 columns, one a lane, and its warps share out the
// rows; their sums meet in shared memory, behind a barrier.
//
// What is still wrong with it. dy and x are read from memory by both kernels. The second has C/32 blocks, 24 for
// GPT-2's 768 columns, so that most of the GPU's 100 or so processors stand idle. And a thread loads 4 bytes at a time,
// of 16.
#include "runtime/cuda/ladder/layer_norm_backward_arrays.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

constexpr int kBlock = 256;
constexpr int kWarps = kBlock / kWarp;

// One warp a row.
template <typename T>
__global__ void __launch_bounds__(kBlock) tiled_dx_kernel(LayerNormBackwardArrays<T> a) {
  const int lane = threadIdx.x % kWarp;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (n >= a.N) return;  // the whole warp
  const float mean = a.mean[n], rstd = a.rstd[n];
  float sum_g = 0, sum_g_xh = 0;
  for (int64_t c = lane; c < a.C; c += kWarp) {
    const float xh = (to_float(a.x[n * a.C + c]) - mean) * rstd;
    const float g = to_float(a.gamma[c]) * to_float(a.dy[n * a.C + c]);
    sum_g += g;
    sum_g_xh = fmaf(g, xh, sum_g_xh);
  }
  const float mean_g = warp_sum(sum_g) / static_cast<float>(a.C);
  const float mean_g_xh = warp_sum(sum_g_xh) / static_cast<float>(a.C);
  for (int64_t c = lane; c < a.C; c += kWarp) {
    const int64_t i = n * a.C + c;
    const float xh = (to_float(a.x[i]) - mean) * rstd;
    const float g = to_float(a.gamma[c]) * to_float(a.dy[i]);
    float d = rstd * fmaf(-xh, mean_g_xh, g - mean_g);
    if (a.dresidual) d += to_float(a.dresidual[i]);
    a.dx[i] = from_float<T>(d);
  }
}

// One block a tile of 32 columns; warp w has rows w, w + kWarps, ...
template <typename T>
__global__ void __launch_bounds__(kBlock) tiled_parameters_kernel(LayerNormBackwardArrays<T> a) {
  __shared__ SharedArray<float, kBlock> dgammas;
  __shared__ SharedArray<float, kBlock> dbetas;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  float dgamma = 0, dbeta = 0;
  if (c < a.C)
    for (int64_t n = warp; n < a.N; n += kWarps) {
      const float d = to_float(a.dy[n * a.C + c]);
      dgamma = fmaf(d, (to_float(a.x[n * a.C + c]) - a.mean[n]) * a.rstd[n], dgamma);
      dbeta += d;
    }
  dgammas[threadIdx.x] = dgamma;
  dbetas[threadIdx.x] = dbeta;
  __syncthreads();
  if (warp != 0 || c >= a.C) return;
  for (int w = 1; w < kWarps; ++w) {
    dgamma += dgammas[w * kWarp + lane];
    dbeta += dbetas[w * kWarp + lane];
  }
  if (a.dgamma) a.dgamma[c] = from_float<T>(a.accumulate ? to_float(a.dgamma[c]) + dgamma : dgamma);
  if (a.dbeta) a.dbeta[c] = from_float<T>(a.accumulate ? to_float(a.dbeta[c]) + dbeta : dbeta);
}

}  // namespace

void layer_norm_backward_tiled(cudaStream_t stream, Allocator&, const LayerNormBackward& call) {
  dispatch_float("layer_norm_backward", call.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const LayerNormBackwardArrays<T> arrays(call);
    launch(stream, exact_blocks(divide_up(call.N, kWarps)), kBlock, 0, tiled_dx_kernel<T>, arrays);
    launch(stream, exact_blocks(divide_up(call.C, kWarp)), kBlock, 0, tiled_parameters_kernel<T>, arrays);
  });
}

}  // namespace trencadis
