// Rung 2 of matrix products: tiles in shared memory.
//
// A block makes 32 x 32 results. It walks along K: 32 columns of its rows of a and of b into shared memory, a barrier,
// the products of these, a barrier, the next. Each operand is read from global memory once for a row of 32 results, and
// by neighbouring lanes from neighbouring addresses. Still two reads, from shared memory, for one multiplication.
//
//         b: 32 rows of N             block (256 threads, 4 results each)
//        +--------+                   thread (x, y): rows y, y + 8, y + 16, y + 24 of column x
//   a    |k0 . . .|
//  32 +--+--------+
//  of |k0| 32x32  |
//  M  |. |results |
//     +--+--------+
#include "device/shared_array.h"
#include "runtime/cuda/argument.h"
#include "runtime/cuda/ladder/matmul.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

constexpr int kTile = 32, kDown = 8;     // threads: kTile across, kDown down
constexpr int kResults = kTile / kDown;  // of a thread
constexpr int kStride = kTile + 1;       // odd: lanes that walk down a column meet 32 different banks

template <typename T>
__global__ void __launch_bounds__(kTile* kDown) tiled_kernel(T* c, const T* a, const T* b, int M, int N, int K) {
  __shared__ SharedArray<float, kTile * kStride> a_tile;
  __shared__ SharedArray<float, kTile * kStride> b_tile;
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const int m0 = static_cast<int>(blockIdx.y) * kTile, n0 = static_cast<int>(blockIdx.x) * kTile;
  float sums[kResults] = {};
  for (int k0 = 0; k0 < K; k0 += kTile) {
    for (int row = y; row < kTile; row += kDown) {
      const int64_t a_at = static_cast<int64_t>(m0 + row) * K + k0 + x,
                    b_at = static_cast<int64_t>(n0 + row) * K + k0 + x;
      a_tile[row * kStride + x] = m0 + row < M && k0 + x < K ? to_float(a[a_at]) : 0;
      b_tile[row * kStride + x] = n0 + row < N && k0 + x < K ? to_float(b[b_at]) : 0;
    }
    __syncthreads();  // the tiles are complete
    for (int k = 0; k < kTile; ++k) {
      const float right = b_tile[x * kStride + k];
#pragma unroll
      for (int r = 0; r < kResults; ++r) sums[r] = fmaf(a_tile[(y + kDown * r) * kStride + k], right, sums[r]);
    }
    __syncthreads();  // nobody reads them any more
  }
#pragma unroll
  for (int r = 0; r < kResults; ++r) {
    const int m = m0 + y + kDown * r, n = n0 + x;
    if (m < M && n < N) c[static_cast<int64_t>(m) * N + n] = from_float<T>(sums[r]);
  }
}

}  // namespace

void matmul_tiled(cudaStream_t stream, View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K) {
  dispatch_float("matmul_tiled", c.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, dim3(exact_blocks(divide_up(N, kTile)), exact_blocks(divide_up(M, kTile), 65535)),
           dim3(kTile, kDown), 0, tiled_kernel<T>, device_argument<T>("matmul_tiled", "c", c, M * N),
           device_argument<T>("matmul_tiled", "a", a, M * K), device_argument<T>("matmul_tiled", "b", b, N * K), M, N,
           K);
  });
}

}  // namespace trencadis
