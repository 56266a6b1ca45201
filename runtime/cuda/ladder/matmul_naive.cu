// Rung 1 of matrix products: a thread a result.
//
// Each result needs 2 K operands and each of them comes from global memory (or a cache that was lucky): two loads for
// one multiplication. The machine can multiply some fifty times for each number that it can load.
#include "runtime/cuda/argument.h"
#include "runtime/cuda/ladder/matmul.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

constexpr int kSide = 16;

template <typename T>
__global__ void __launch_bounds__(kSide* kSide) naive_kernel(T* c, const T* a, const T* b, int M, int N, int K) {
  const int m = static_cast<int>(blockIdx.y * kSide + threadIdx.y);
  const int n = static_cast<int>(blockIdx.x * kSide + threadIdx.x);
  if (m >= M || n >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k)
    sum = fmaf(to_float(a[static_cast<int64_t>(m) * K + k]), to_float(b[static_cast<int64_t>(n) * K + k]), sum);
  c[static_cast<int64_t>(m) * N + n] = from_float<T>(sum);
}

}  // namespace

void matmul_naive(cudaStream_t stream, View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K) {
  dispatch_float("matmul_naive", c.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, dim3(exact_blocks(divide_up(N, kSide)), exact_blocks(divide_up(M, kSide), 65535)),
           dim3(kSide, kSide), 0, naive_kernel<T>, device_argument<T>("matmul_naive", "c", c, M * N),
           device_argument<T>("matmul_naive", "a", a, M * K), device_argument<T>("matmul_naive", "b", b, N * K), M, N,
           K);
  });
}

}  // namespace trencadis
