// GELU behind a bias, and its backward pass; the formulas: gelu.cuh.
//
// Forward is a pass over elements. Backward also needs dbias, a sum over rows: a block has kColumns groups of columns
// by kRows rows at a time, walks down its chunk of rows, and folds its rows at the end (column_sums.cuh).
#include "runtime/cuda/argument.h"
#include "runtime/cuda/column_sums.cuh"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/gelu.cuh"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

// A thread has one group of columns in each of its rows, and therefore loads its part of the bias once.
constexpr int kColumns = 32, kRows = 8;
constexpr int kBlock = kColumns * kRows;
constexpr int64_t kRowsOfABlock = 4 * kRows;

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kBlock) bias_gelu_kernel(T* y, const T* x, const T* bias, int64_t N, int64_t K) {
  const int64_t k = (static_cast<int64_t>(blockIdx.x) * kColumns + threadIdx.x % kColumns) * kGroup<T>;
  if (k >= K) return;
  const Group<T> offset = load_group<kAligned>(bias + k, K - k);
  for (int64_t n = static_cast<int64_t>(blockIdx.y) * kRows + threadIdx.x / kColumns; n < N;
       n += static_cast<int64_t>(gridDim.y) * kRows) {
    Group<T> u = load_group<kAligned>(x + n * K + k, K - k);
#pragma unroll
    for (int i = 0; i < kGroup<T>; ++i) u.v[i] = gelu(u.v[i] + offset.v[i]);
    store_group<kAligned>(y + n * K + k, u, K - k);
  }
}

// dx (N,K); partials (chunks,K): the sums of dx over the rows of a chunk. In place: each thread reads what it writes.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kBlock) bias_gelu_backward_kernel(T* dx, float* partials, const T* dy, const T* x,
                                                                    const T* bias, int64_t N, int64_t K, int64_t rows) {
  __shared__ SharedArray<float, kBlock * kGroup<T>> sums;
  const int column = threadIdx.x % kColumns, row = threadIdx.x / kColumns;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kColumns * kGroup<T>;  // the block's first column
  const int64_t k = first + column * kGroup<T>;
  const int64_t begin = blockIdx.y * rows, end = begin + rows < N ? begin + rows : N;
  Group<T> sum = {};
  if (k < K) {
    const Group<T> offset = load_group<kAligned>(bias + k, K - k);
    for (int64_t n = begin + row; n < end; n += kRows) {
      const Group<T> u = load_group<kAligned>(x + n * K + k, K - k);
      Group<T> d = load_group<kAligned>(dy + n * K + k, K - k);
#pragma unroll
      for (int i = 0; i < kGroup<T>; ++i) {
        d.v[i] *= gelu_derivative(u.v[i] + offset.v[i]);
        sum.v[i] += d.v[i];
      }
      store_group<kAligned>(dx + n * K + k, d, K - k);
    }
  }
  if (!partials) return;  // dbias is frozen
#pragma unroll
  for (int i = 0; i < kGroup<T>; ++i) sums[(row * kColumns + column) * kGroup<T> + i] = sum.v[i];
  __syncthreads();
  // Thread t adds column t of the block, from the first row of threads to the last.
  constexpr int kWidth = kColumns * kGroup<T>;
  for (int c = threadIdx.x; c < kWidth && first + c < K; c += kBlock) {
    float total = 0;
    for (int r = 0; r < kRows; ++r) total += sums[r * kWidth + c];
    partials[blockIdx.y * K + first + c] = total;
  }
}

}  // namespace

void CudaKernels::bias_gelu(View y, ConstView x, ConstView bias, int64_t N, int64_t K) {
  const char* kernel = "bias_gelu";
  dispatch_float(kernel, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>(kernel, "y", y, N * K);
    const T* in = device_argument<T>(kernel, "x", x, N * K);
    const T* offset = device_argument<T>(kernel, "bias", bias, K);
    const dim3 grid(exact_blocks(divide_up(K, kColumns * kGroup<T>)),
                    static_cast<unsigned>(std::min<int64_t>(divide_up(N, kRowsOfABlock), 65535)));
    dispatch_bool(aligned16(out, in, offset) && aligned_rows<T>(N, K), [&](auto aligned) {
      launch(stream_, grid, kBlock, 0, bias_gelu_kernel<T, aligned()>, out, in, offset, N, K);
    });
  });
}

void CudaKernels::bias_gelu_backward(View dx, View dbias, ConstView dy, ConstView x, ConstView bias, int64_t N,
                                     int64_t K, bool accumulate) {
  const char* kernel = "bias_gelu_backward";
  dispatch_float(kernel, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* dx_out = device_argument<T>(kernel, "dx", dx, N * K);
    T* dbias_out = optional_argument<T>(kernel, "dbias", dbias, K);
    const T* dy_in = device_argument<T>(kernel, "dy", dy, N * K);
    const T* x_in = device_argument<T>(kernel, "x", x, N * K);
    const T* offset = device_argument<T>(kernel, "bias", bias, K);
    const RowChunks chunks(N, kRowsOfABlock, 128);
    const Scratch<float> partials(scratch_, dbias_out ? chunks.count * K : 0);
    const dim3 grid(exact_blocks(divide_up(K, kColumns * kGroup<T>)), exact_blocks(chunks.count, 65535));
    dispatch_bool(aligned16(dx_out, dy_in, x_in, offset) && aligned_rows<T>(N, K), [&](auto aligned) {
      launch(stream_, grid, kBlock, 0, bias_gelu_backward_kernel<T, aligned()>, dx_out, partials.data(), dy_in, x_in,
             offset, N, K, chunks.rows);
    });
    if (dbias_out) add_partials(stream_, dbias_out, partials.data(), chunks.count, K, accumulate);
  });
}

}  // namespace trencadis
