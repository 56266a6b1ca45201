// Sums and maxima over the threads of a warp and of a block. The order of every sum is fixed by the number of threads.
#pragma once

#include <cuda_runtime.h>

#include "device/shared_array.h"

namespace trencadis {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// Folds `value` over the warp's 32 lanes, 16 apart, then 8, 4, 2, 1. Each step adds the same two numbers in both
// partners, so every lane ends with the same bits. All 32 lanes must call it.
template <typename T, typename F>
__device__ inline T warp_fold(T value, F f) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value = f(value, __shfl_xor_sync(kAllLanes, value, offset));
  return value;
}
template <typename T>
__device__ inline T warp_sum(T value) {
  return warp_fold(value, [](T a, T b) { return a + b; });
}
__device__ inline float warp_max(float value) {
  return warp_fold(value, [](float a, float b) { return fmaxf(a, b); });
}
__device__ inline unsigned warp_max(unsigned value) {
  return warp_fold(value, [](unsigned a, unsigned b) { return a > b ? a : b; });
}

// Folds `value` over a block of kBlock threads with f (`fold_warp` folds a warp): first each warp, then the warps'
// results in the order of the warps, by every thread for itself. Every thread of the block must call it, and gets the
// result. The barrier at the start lets a caller use it twice: nobody may overwrite what others still read.
template <int kBlock, typename T, typename FoldWarp, typename F>
__device__ inline T block_fold(T value, FoldWarp fold_warp, F f) {
  static_assert(kBlock % kWarp == 0 && kBlock <= 1024);
  constexpr int kWarps = kBlock / kWarp;
  __shared__ SharedArray<T, kWarps> parts;
  value = fold_warp(value);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = value;
  __syncthreads();
  T result = parts[0];
  for (int w = 1; w < kWarps; ++w) result = f(result, parts[w]);
  return result;
}
template <int kBlock, typename T>
__device__ inline T block_sum(T value) {
  return block_fold<kBlock>(
      value, [](T v) { return warp_sum(v); }, [](T a, T b) { return a + b; });
}
template <int kBlock, typename T>
__device__ inline T block_max(T value) {
  return block_fold<kBlock>(
      value, [](T v) { return warp_max(v); }, [](T a, T b) { return a > b ? a : b; });
}

}  // namespace trencadis
