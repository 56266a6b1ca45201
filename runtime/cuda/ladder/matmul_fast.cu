// Rung 3 of matrix products: results in registers, wide loads, two tiles in flight.
//
//   registers        A thread makes 8 x 8 results. For each k it reads 8 + 8 operands and multiplies 64 times: shared
//                    memory, which bound rung 2, is read 1/4 as often for a multiplication.
//   wide loads       Four operands along K in one load (16 bytes of f32, 8 of bf16).
//   double buffering Tiles live twice. While one is used, asynchronous copies fill the other: no thread waits for
//                    global memory, and none carries the next tile through registers.
//
// A block of 256 threads makes 128 x 128 results. Thread (x, y) of 16 x 16 has rows y + 16 r and columns x + 16 c:
// strided, so that eight lanes read eight neighbouring rows of b, whose padding puts them in different banks.
#include "device/shared_array.h"
#include "runtime/cuda/argument.h"
#include "runtime/cuda/ladder/async_tile.cuh"
#include "runtime/cuda/ladder/matmul.h"
#include "runtime/cuda/launch.h"

namespace trencadis {

namespace {

constexpr int kTile = 128, kSide = 16, kThreads = kSide * kSide;
constexpr int kResults = kTile / kSide;  // of a thread, in each direction
template <typename T>
constexpr int kDepth = 4 * kGroup<T>;  // of a tile along K: 64 bytes
template <typename T>
constexpr int kStride = kDepth<T> + kGroup<T>;
template <typename T>
constexpr int kTileSize = kTile* kStride<T>;

template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T v[4];
};

template <typename T>
__device__ float4 load_four(const T* p) {
  const Four<T> four = *reinterpret_cast<const Four<T>*>(p);
  return make_float4(to_float(four.v[0]), to_float(four.v[1]), to_float(four.v[2]), to_float(four.v[3]));
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    fast_kernel(T* c, const T* a, const T* b, int M, int N, int K, bool aligned) {
  __shared__ SharedArray<T, 2 * kTileSize<T>> a_tiles;
  __shared__ SharedArray<T, 2 * kTileSize<T>> b_tiles;
  const int x = static_cast<int>(threadIdx.x) % kSide, y = static_cast<int>(threadIdx.x) / kSide;
  const int m0 = static_cast<int>(blockIdx.y) * kTile, n0 = static_cast<int>(blockIdx.x) * kTile;

  const auto start = [&](int buffer, int k0) {
    start_tile<kTile, kDepth<T>, kStride<T>, kThreads>(&a_tiles[buffer * kTileSize<T>], a, m0, k0, M, K, aligned);
    start_tile<kTile, kDepth<T>, kStride<T>, kThreads>(&b_tiles[buffer * kTileSize<T>], b, n0, k0, N, K, aligned);
    copy_async_commit();
  };

  float sums[kResults][kResults] = {};
  start(0, 0);
  for (int k0 = 0, buffer = 0; k0 < K; k0 += kDepth<T>, buffer ^= 1) {
    if (k0 + kDepth<T> < K) {
      start(buffer ^ 1, k0 + kDepth<T>);
      copy_async_wait<1>();  // all but the newest: this tile is here
    } else {
      copy_async_wait<0>();
    }
    __syncthreads();  // every thread's part of it is
    const T* a_tile = &a_tiles[buffer * kTileSize<T>];
    const T* b_tile = &b_tiles[buffer * kTileSize<T>];
#pragma unroll 1
    for (int k = 0; k < kDepth<T>; k += 4) {
      float4 right[kResults];
#pragma unroll
      for (int j = 0; j < kResults; ++j) right[j] = load_four(b_tile + (x + kSide * j) * kStride<T> + k);
#pragma unroll
      for (int i = 0; i < kResults; ++i) {
        const float4 left = load_four(a_tile + (y + kSide * i) * kStride<T> + k);
#pragma unroll
        for (int j = 0; j < kResults; ++j) {
          sums[i][j] = fmaf(left.x, right[j].x, sums[i][j]);
          sums[i][j] = fmaf(left.y, right[j].y, sums[i][j]);
          sums[i][j] = fmaf(left.z, right[j].z, sums[i][j]);
          sums[i][j] = fmaf(left.w, right[j].w, sums[i][j]);
        }
      }
    }
    __syncthreads();  // nobody reads it any more; the next turn fills it
  }
#pragma unroll
  for (int i = 0; i < kResults; ++i)
#pragma unroll
    for (int j = 0; j < kResults; ++j) {
      const int m = m0 + y + kSide * i, n = n0 + x + kSide * j;
      if (m < M && n < N) c[static_cast<int64_t>(m) * N + n] = from_float<T>(sums[i][j]);
    }
}

}  // namespace

void matmul_fast(cudaStream_t stream, View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K) {
  dispatch_float("matmul_fast", c.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* left = device_argument<T>("matmul_fast", "a", a, M * K);
    const T* right = device_argument<T>("matmul_fast", "b", b, N * K);
    launch(stream, dim3(exact_blocks(divide_up(N, kTile)), exact_blocks(divide_up(M, kTile), 65535)), kThreads, 0,
           fast_kernel<T>, device_argument<T>("matmul_fast", "c", c, M * N), left, right, M, N, K,
           K % kGroup<T> == 0 && aligned16(left, right));
  });
}

}  // namespace trencadis
