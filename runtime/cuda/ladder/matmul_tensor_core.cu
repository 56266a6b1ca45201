// Rung 4 of matrix products: tensor cores (bf16).
//
// One mma.sync multiplies (16,16) by (16,8) for a whole warp: 2048 multiplications, spread over the registers of 32
// lanes. The tiles and the copies are rung 3's; what is new is who holds what. With g = lane / 4, t = lane % 4, a lane
// has of a 16 x 16 part of a: rows g and g + 8, columns 2t, 2t+1, 2t+8, 2t+9; of an 8 x 16 part of b (rows of N, as
// it lies): row g, the same columns; of the results: rows g, g + 8, columns 2t, 2t+1. So each operand is a pair of
// neighbours in memory: one 32-bit read.
//
//   block: 128 x 128 results, 8 warps as 2 x 4; warp: 64 x 32 results = 4 x 4 mma results; 32 columns of K at a time.
#include "device/mma.h"
#include "device/shared_array.h"
#include "runtime/cuda/argument.h"
#include "runtime/cuda/ladder/async_tile.cuh"
#include "runtime/cuda/ladder/matmul.h"
#include "runtime/cuda/launch.h"

namespace trencadis {

namespace {

using T = __nv_bfloat16;

constexpr int kTile = 128, kThreads = 256;
constexpr int kDepth = 32;           // of a tile along K
constexpr int kStride = kDepth + 8;  // 20 words: rows g and columns t of a warp meet 32 different banks
constexpr int kTileSize = kTile * kStride;
constexpr int kWarpRows = 64, kWarpColumns = 32;                   // of results
constexpr int kDown = kWarpRows / 16, kAcross = kWarpColumns / 8;  // mma results of a warp

// Elements i and i + 1.
__device__ inline uint32_t pair(const T* p) { return *reinterpret_cast<const uint32_t*>(p); }

__global__ void __launch_bounds__(kThreads)
    tensor_core_kernel(T* c, const T* a, const T* b, int M, int N, int K, bool aligned) {
  __shared__ SharedArray<T, 2 * kTileSize> a_tiles;
  __shared__ SharedArray<T, 2 * kTileSize> b_tiles;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
  const int m0 = static_cast<int>(blockIdx.y) * kTile, n0 = static_cast<int>(blockIdx.x) * kTile;
  const int warp_m = warp / 4 * kWarpRows, warp_n = warp % 4 * kWarpColumns;

  const auto start = [&](int buffer, int k0) {
    start_tile<kTile, kDepth, kStride, kThreads>(&a_tiles[buffer * kTileSize], a, m0, k0, M, K, aligned);
    start_tile<kTile, kDepth, kStride, kThreads>(&b_tiles[buffer * kTileSize], b, n0, k0, N, K, aligned);
    copy_async_commit();
  };

  float sums[kDown][kAcross][4] = {};
  start(0, 0);
  for (int k0 = 0, buffer = 0; k0 < K; k0 += kDepth, buffer ^= 1) {
    if (k0 + kDepth < K) {
      start(buffer ^ 1, k0 + kDepth);
      copy_async_wait<1>();
    } else {
      copy_async_wait<0>();
    }
    __syncthreads();
    const T* my_a = &a_tiles[buffer * kTileSize] + (warp_m + g) * kStride + 2 * t;
    const T* my_b = &b_tiles[buffer * kTileSize] + (warp_n + g) * kStride + 2 * t;
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t right[kAcross][2];
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        right[j][0] = pair(my_b + 8 * j * kStride + k);
        right[j][1] = pair(my_b + 8 * j * kStride + k + 8);
      }
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
        const T* rows = my_a + 16 * i * kStride + k;
        const uint32_t left[4] = {pair(rows), pair(rows + 8 * kStride), pair(rows + 8), pair(rows + 8 * kStride + 8)};
#pragma unroll
        for (int j = 0; j < kAcross; ++j) mma_m16n8k16(sums[i][j], left, right[j], sums[i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kDown; ++i)
#pragma unroll
    for (int j = 0; j < kAcross; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int m = m0 + warp_m + 16 * i + g + e / 2 * 8, n = n0 + warp_n + 8 * j + 2 * t + e % 2;
        if (m < M && n < N) c[static_cast<int64_t>(m) * N + n] = from_float<T>(sums[i][j][e]);
      }
}

}  // namespace

void matmul_tensor_core(cudaStream_t stream, View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K) {
  const T* left = device_argument<T>("matmul_tensor_core", "a", a, M * K);
  const T* right = device_argument<T>("matmul_tensor_core", "b", b, N * K);
  launch(stream, dim3(exact_blocks(divide_up(N, kTile)), exact_blocks(divide_up(M, kTile), 65535)), kThreads, 0,
         tensor_core_kernel, device_argument<T>("matmul_tensor_core", "c", c, M * N), left, right, M, N, K,
         K % kGroup<T> == 0 && aligned16(left, right));
}

}  // namespace trencadis
