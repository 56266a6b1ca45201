// Layer norm, alone and behind a residual addition. Ba, Kiros, Hinton 2016. The backward pass has a ladder of its own:
// ladder/layer_norm_backward.h.
//
// One warp a row (C). Its lanes pass over the row three times: sum, squares around the mean, output. Only the first
// pass reaches memory; rows are short (C * 4 bytes), and the cache beside the warp still has them. No shared memory, no
// barrier: lanes exchange their sums by shuffles.
#include "runtime/cuda/argument.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/ladder/layer_norm_backward.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

constexpr int kBlock = 256;
constexpr int kRowsOfABlock = kBlock / kWarp;

// body(c) for the groups of a row that belong to this lane; c is a group's first column.
template <typename T, typename Body>
__device__ inline void for_groups(int64_t C, Body body) {
  for (int64_t c = threadIdx.x % kWarp * kGroup<T>; c < C; c += kWarp * kGroup<T>) body(c);
}

// kResidual: s = x + r comes first, rounded to T; what follows is layer_norm(s). Else s and r are unused.
template <bool kAligned, bool kResidual, typename T>
__global__ void __launch_bounds__(kBlock)
    layer_norm_kernel(T* s, T* y, float* mean_out, float* rstd_out, const T* x, const T* r, const T* gamma,
                      const T* beta, int64_t N, int64_t C, float eps) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kRowsOfABlock + threadIdx.x / kWarp;
  if (n >= N) return;  // the whole warp
  const T* row = (kResidual ? s : x) + n * C;

  float sum = 0;
  for_groups<T>(C, [&](int64_t c) {
    Group<T> group = load_group<kAligned>(x + n * C + c, C - c);
    if constexpr (kResidual) {
      const Group<T> other = load_group<kAligned>(r + n * C + c, C - c);
#pragma unroll
      for (int i = 0; i < kGroup<T>; ++i) group.v[i] = to_float(from_float<T>(group.v[i] + other.v[i]));
      store_group<kAligned>(s + n * C + c, group, C - c);
    }
#pragma unroll
    for (int i = 0; i < kGroup<T>; ++i) sum += group.v[i];
  });
  const float mean = warp_sum(sum) / static_cast<float>(C);

  // Around the mean: the difference of two large sums would lose the variance. Elements beyond C are the mean: 0.
  float squares = 0;
  for_groups<T>(C, [&](int64_t c) {
    const Group<T> group = load_group<kAligned>(row + c, C - c, mean);
#pragma unroll
    for (int i = 0; i < kGroup<T>; ++i) squares = fmaf(group.v[i] - mean, group.v[i] - mean, squares);
  });
  const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(C) + eps);

  for_groups<T>(C, [&](int64_t c) {
    Group<T> group = load_group<kAligned>(row + c, C - c);
    const Group<T> scale = load_group<kAligned>(gamma + c, C - c), shift = load_group<kAligned>(beta + c, C - c);
#pragma unroll
    for (int i = 0; i < kGroup<T>; ++i) group.v[i] = fmaf((group.v[i] - mean) * rstd, scale.v[i], shift.v[i]);
    store_group<kAligned>(y + n * C + c, group, C - c);
  });
  if (threadIdx.x % kWarp == 0) {
    mean_out[n] = mean;
    rstd_out[n] = rstd;
  }
}

}  // namespace

void CudaKernels::layer_norm(View y, View mean, View rstd, ConstView x, ConstView gamma, ConstView beta, int64_t N,
                             int64_t C, float eps) {
  const char* kernel = "layer_norm";
  dispatch_float(kernel, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>(kernel, "y", y, N * C);
    float* means = device_argument<float>(kernel, "mean", mean, N);
    float* rstds = device_argument<float>(kernel, "rstd", rstd, N);
    const T* in = device_argument<T>(kernel, "x", x, N * C);
    const T* scale = device_argument<T>(kernel, "gamma", gamma, C);
    const T* shift = device_argument<T>(kernel, "beta", beta, C);
    dispatch_bool(aligned16(out, in, scale, shift) && aligned_rows<T>(N, C), [&](auto aligned) {
      launch(stream_, exact_blocks(divide_up(N, kRowsOfABlock)), kBlock, 0, layer_norm_kernel<aligned(), false, T>,
             nullptr, out, means, rstds, in, nullptr, scale, shift, N, C, eps);
    });
  });
}

void CudaKernels::residual_layer_norm(View s, View y, View mean, View rstd, ConstView x, ConstView r, ConstView gamma,
                                      ConstView beta, int64_t N, int64_t C, float eps) {
  const char* kernel = "residual_layer_norm";
  dispatch_float(kernel, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* sum = device_argument<T>(kernel, "s", s, N * C);
    T* out = device_argument<T>(kernel, "y", y, N * C);
    float* means = device_argument<float>(kernel, "mean", mean, N);
    float* rstds = device_argument<float>(kernel, "rstd", rstd, N);
    const T* in = device_argument<T>(kernel, "x", x, N * C);
    const T* residual = device_argument<T>(kernel, "r", r, N * C);
    const T* scale = device_argument<T>(kernel, "gamma", gamma, C);
    const T* shift = device_argument<T>(kernel, "beta", beta, C);
    dispatch_bool(aligned16(sum, out, in, residual, scale, shift) && aligned_rows<T>(N, C), [&](auto aligned) {
      launch(stream_, exact_blocks(divide_up(N, kRowsOfABlock)), kBlock, 0, layer_norm_kernel<aligned(), true, T>, sum,
             out, means, rstds, in, residual, scale, shift, N, C, eps);
    });
  });
}

void CudaKernels::layer_norm_backward(View dx, View dgamma, View dbeta, ConstView dy, ConstView x, ConstView mean,
                                      ConstView rstd, ConstView gamma, ConstView dresidual, int64_t N, int64_t C,
                                      bool accumulate) {
  layer_norm_backward_fast(stream_, scratch_,
                           {dx, dgamma, dbeta, dy, x, mean, rstd, gamma, dresidual, N, C, accumulate});
}

}  // namespace trencadis
