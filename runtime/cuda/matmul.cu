// Matrix products through cuBLAS, and the gradient of a bias. How a product is made fast: ladder/matmul.h.
//
// cuBLAS stores matrices by columns, this project by rows. A matrix by rows is its transpose by columns, so the product
// asked of cuBLAS is c^T = op(b)^T op(a)^T: operands exchanged, M and N exchanged, each matrix as it lies in memory.
// bf16 operands are summed in f32 and rounded once.
#include <limits>

#include "runtime/cuda/argument.h"
#include "runtime/cuda/column_sums.cuh"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

constexpr int kBlock = 256;

// y (N,K): every row becomes `bias` (K).
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kBlock) fill_rows_kernel(T* y, const T* bias, int64_t N, int64_t K) {
  const int64_t groups = (K + kGroup<T> - 1) / kGroup<T>;  // of a row
  for (int64_t i = grid_thread(); i < N * groups; i += grid_threads()) {
    const int64_t row = i / groups, column = i % groups * kGroup<T>;
    const Group<T> group = load_group<kAligned>(bias + column, K - column);
    store_group<kAligned>(y + row * K + column, group, K - column);
  }
}

// partials (chunks,K): the sums of dy over the rows of a chunk. A block has kLanes groups of columns by kRows rows at a
// time; its threads fold at the end, from the first row of threads to the last.
constexpr int kLanes = 16, kRows = kBlock / kLanes;
constexpr int64_t kRowsOfAChunk = 4 * kRows, kMostChunks = 128;

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kBlock)
    sum_rows_kernel(float* partials, const T* dy, int64_t N, int64_t K, int64_t rows_of_a_chunk) {
  constexpr int kWidth = kLanes * kGroup<T>;
  __shared__ SharedArray<float, kRows * kWidth> sums;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, row = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kWidth, column = first + lane * kGroup<T>;
  const int64_t begin = blockIdx.y * rows_of_a_chunk;
  const int64_t end = begin + rows_of_a_chunk < N ? begin + rows_of_a_chunk : N;
  Group<T> sum = {};
  if (column < K) {
    for (int64_t n = begin + row; n < end; n += kRows) {
      const Group<T> group = load_group<kAligned>(dy + n * K + column, K - column);
#pragma unroll
      for (int i = 0; i < kGroup<T>; ++i) sum.v[i] += group.v[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kGroup<T>; ++i) sums[row * kWidth + lane * kGroup<T> + i] = sum.v[i];
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < kWidth && first + c < K; c += kBlock) {
    float total = 0;
    for (int r = 0; r < kRows; ++r) total += sums[r * kWidth + c];
    partials[blockIdx.y * K + first + c] = total;
  }
}

// The rows of an (N,K) matrix, and a vector, may be read in groups.
template <typename T, typename... P>
bool rows_aligned(int64_t K, const P*... pointers) {
  return K % kGroup<T> == 0 && aligned16(pointers...);
}

int blas_int(int64_t n) {
  CHECK(n <= std::numeric_limits<int>::max(), "matmul: a side of {} is more than cuBLAS takes (2^31 - 1)", n);
  return static_cast<int>(n);
}

// Several products with one shape: matrices from one operand to the next of the same kind; 0 where it is repeated.
struct Batch {
  int64_t count = 1, a_step = 0, b_step = 0;
};

// c (batch,M,N) = op(a) op(b) + beta c.
template <typename T>
void product(const CublasHandle& handle, T* c, const T* a, const T* b, int64_t M, int64_t N, int64_t K, bool trans_a,
             bool trans_b, float beta, const Batch& batch = {}) {
  constexpr cudaDataType_t kType = sizeof(T) == 4 ? CUDA_R_32F : CUDA_R_16BF;
  const cublasComputeType_t compute =
      kType == CUDA_R_32F && handle.tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  const float alpha = 1;
  CUBLAS_CHECK(cublasGemmStridedBatchedEx(handle.get(), trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                                          trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, blas_int(N), blas_int(M), blas_int(K),
                                          &alpha, b, kType, blas_int(trans_b ? K : N), batch.b_step * K * N, a, kType,
                                          blas_int(trans_a ? M : K), batch.a_step * M * K, &beta, c, kType, blas_int(N),
                                          M * N, blas_int(batch.count), compute, CUBLAS_GEMM_DEFAULT));
}

}  // namespace

void CudaKernels::matmul(View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K, bool trans_a, bool trans_b,
                         bool accumulate) {
  dispatch_float("matmul", c.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>("matmul", "c", c, M * N);
    const T* left = device_argument<T>("matmul", "a", a, M * K);
    const T* right = device_argument<T>("matmul", "b", b, K * N);
    if (M == 0 || N == 0) return;
    if (K == 0) {  // a leading dimension of 0 is an error of cuBLAS
      if (!accumulate) CUDA_CHECK(cudaMemsetAsync(out, 0, static_cast<size_t>(M * N) * sizeof(T), stream_));
      return;
    }
    product(products_, out, left, right, M, N, K, trans_a, trans_b, accumulate ? 1.0f : 0.0f);
  });
}

// One call for the innermost dimension of the batch, whose steps are even; the host walks the others.
void CudaKernels::batched_matmul(View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K, bool trans_a,
                                 bool trans_b, const Loop& batch) {
  const char* kernel = "batched_matmul";
  dispatch_float(kernel, c.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t matrices = batch.count();
    T* out = device_argument<T>(kernel, "c", c, matrices * M * N);
    const T* left = device_argument<T>(kernel, "a", a, batch.span(0) * M * K);
    const T* right = device_argument<T>(kernel, "b", b, batch.span(1) * K * N);
    if (matrices == 0 || M == 0 || N == 0) return;
    if (K == 0) {
      CUDA_CHECK(cudaMemsetAsync(out, 0, static_cast<size_t>(matrices * M * N) * sizeof(T), stream_));
      return;
    }
    const int inner = batch.rank - 1;
    const Batch each = inner < 0 ? Batch() : Batch{batch.size[inner], batch.step[0][inner], batch.step[1][inner]};
    for (int64_t first = 0; first < matrices; first += each.count) {
      int64_t a_at = 0, b_at = 0, rest = first / each.count;
      for (int d = inner - 1; d >= 0; --d) {
        a_at += rest % batch.size[d] * batch.step[0][d];
        b_at += rest % batch.size[d] * batch.step[1][d];
        rest /= batch.size[d];
      }
      product(products_, out + first * M * N, left + a_at * M * K, right + b_at * K * N, M, N, K, trans_a, trans_b,
              0.0f, each);
    }
  });
}

// The bias is laid down first and the product added to it: one rounding, as in one formula.
void CudaKernels::linear(View y, ConstView x, ConstView w, ConstView bias, int64_t N, int64_t C, int64_t K) {
  if (!bias) return matmul(y, x, w, N, K, C, false, true, false);
  dispatch_float("linear", y.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>("linear", "y", y, N * K);
    const T* in = device_argument<T>("linear", "x", x, N * C);
    const T* weight = device_argument<T>("linear", "w", w, K * C);
    const T* offset = device_argument<T>("linear", "bias", bias, K);
    if (N == 0 || K == 0) return;
    dispatch_bool(rows_aligned<T>(K, out, offset), [&](auto aligned) {
      launch(stream_, stride_blocks(N * divide_up(K, kGroup<T>), kBlock), kBlock, 0, fill_rows_kernel<T, aligned()>,
             out, offset, N, K);
    });
    if (C > 0) product(products_, out, in, weight, N, K, C, false, true, 1.0f);
  });
}

void CudaKernels::bias_backward(View db, ConstView dy, int64_t N, int64_t K, bool accumulate) {
  if (!db) return;  // frozen
  dispatch_float("bias_backward", dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>("bias_backward", "db", db, K);
    const T* in = device_argument<T>("bias_backward", "dy", dy, N * K);
    const RowChunks chunks(N, kRowsOfAChunk, kMostChunks);
    const Scratch<float> partials(scratch_, chunks.count * K);
    const dim3 grid(exact_blocks(divide_up(K, kLanes * kGroup<T>)), exact_blocks(chunks.count, 65535));
    dispatch_bool(rows_aligned<T>(K, in), [&](auto aligned) {
      launch(stream_, grid, kBlock, 0, sum_rows_kernel<T, aligned()>, partials.data(), in, N, K, chunks.rows);
    });
    add_partials(stream_, out, partials.data(), chunks.count, K, accumulate);
  });
}

}  // namespace trencadis
