// cuBLAS on the CPU: handles, and the two calls of matrix products that the project makes. Signatures are those of
// NVIDIA's header; the products run on gemm() (runtime/blas/gemm.h), in the order of the handle's stream.
//
// Simulated: inputs f32 or bf16, both of one type, accumulated in f32; output f32 or bf16; alpha and beta in host memory.
// Operands are first copied, as f32, into dense matrices. That widens bf16, and it is where the sanitizers see what the
// product reads, to the element: gemm() may be a library that they do not see into.
#include <cublas_v2.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "runtime/blas/gemm.h"
#include "runtime/check.h"
#include "runtime/cudasim/executor.h"
#include "runtime/cudasim/race_context.h"

// What the header's cublasHandle_t points to.
struct cublasContext {
  cudaStream_t stream = nullptr;
};

namespace trencadis::cudasim {
namespace {

// Column-major: element (r, c) is at data[c * ld + r].
struct Matrix {
  char* data;
  cudaDataType_t type;
  int64_t rows, columns, ld;

  size_t element() const { return type == CUDA_R_16BF ? sizeof(__nv_bfloat16) : sizeof(float); }
  char* column(int64_t c) const { return data + static_cast<size_t>(c * ld) * element(); }
};

std::vector<float> read(const Matrix& m) {
  std::vector<float> values(static_cast<size_t>(m.rows * m.columns));
  for (int64_t c = 0; c < m.columns; ++c) {
    const char* column = m.column(c);
    float* to = values.data() + c * m.rows;
    about_to_read(column, static_cast<size_t>(m.rows) * m.element());
    if (m.type == CUDA_R_32F) {
      std::memcpy(to, column, static_cast<size_t>(m.rows) * sizeof(float));
    } else {
      const auto* from = reinterpret_cast<const __nv_bfloat16*>(column);
      for (int64_t r = 0; r < m.rows; ++r) to[r] = __bfloat162float(from[r]);
    }
  }
  return values;
}

void write(const Matrix& m, const std::vector<float>& values) {
  for (int64_t c = 0; c < m.columns; ++c) {
    char* column = m.column(c);
    const float* from = values.data() + c * m.rows;
    about_to_write(column, static_cast<size_t>(m.rows) * m.element());
    if (m.type == CUDA_R_32F) {
      std::memcpy(column, from, static_cast<size_t>(m.rows) * sizeof(float));
    } else {
      auto* to = reinterpret_cast<__nv_bfloat16*>(column);
      for (int64_t r = 0; r < m.rows; ++r) to[r] = __float2bfloat16(from[r]);
    }
  }
}

struct Product {
  bool trans_a, trans_b;
  int64_t m, n, k;
  float alpha, beta;
};

// c (m, n) = alpha op(a) op(b) + beta c. A column-major matrix is the transpose of a row-major one, so this is row-major
// c^T = op(b)^T op(a)^T: the operands change places.
void multiply(const Product& p, const Matrix& a, const Matrix& b, const Matrix& c) {
  const std::vector<float> left = read(a), right = read(b);
  std::vector<float> result = p.beta == 0 ? std::vector<float>(static_cast<size_t>(p.m * p.n)) : read(c);
  gemm(p.trans_b, p.trans_a, p.n, p.m, p.k, p.alpha, right.data(), b.rows, left.data(), a.rows, p.beta, result.data(),
       p.m);
  write(c, result);
}

bool supported(cudaDataType a, cudaDataType b, cudaDataType c, cublasComputeType_t compute) {
  const auto known = [](cudaDataType type) { return type == CUDA_R_32F || type == CUDA_R_16BF; };
  return a == b && known(a) && known(c) && !(a == CUDA_R_32F && c == CUDA_R_16BF) &&
         (compute == CUBLAS_COMPUTE_32F || (compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a == CUDA_R_32F));
}

}  // namespace
}  // namespace trencadis::cudasim

using namespace trencadis::cudasim;  // NOLINT: this file defines C functions

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = std::make_unique<cublasContext>().release();  // until cublasDestroy()
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

// Every mode gives f32 products here.
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an argument has a value that cuBLAS does not take";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "types that the simulator does not multiply";
    default:
      return "a status that is not simulated";
  }
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                          int m, int n, int k, const void* alpha, const void* A, cudaDataType Atype,
                                          int lda, long long int strideA, const void* B, cudaDataType Btype, int ldb,
                                          long long int strideB, const void* beta, void* C, cudaDataType Ctype, int ldc,
                                          long long int strideC, int batchCount, cublasComputeType_t computeType,
                                          cublasGemmAlgo_t) {
  const Product product{
      transa != CUBLAS_OP_N,           transb != CUBLAS_OP_N, m, n, k, *static_cast<const float*>(alpha),
      *static_cast<const float*>(beta)};
  // Matrices are never written but for C; one struct serves all three.
  const auto matrix = [](const void* data, cudaDataType type, bool transposed, int rows, int columns, int ld) {
    return Matrix{static_cast<char*>(const_cast<void*>(data)), type, transposed ? columns : rows,
                  transposed ? rows : columns, ld};
  };
  Matrix a = matrix(A, Atype, product.trans_a, m, k, lda), b = matrix(B, Btype, product.trans_b, k, n, ldb),
         c = matrix(C, Ctype, false, m, n, ldc);
  if (m < 0 || n < 0 || k < 0 || batchCount < 0) return CUBLAS_STATUS_INVALID_VALUE;
  for (const Matrix& each : {a, b, c})
    if (each.ld < std::max<int64_t>(each.rows, 1)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!supported(Atype, Btype, Ctype, computeType)) return CUBLAS_STATUS_NOT_SUPPORTED;
  enqueue(handle->stream, fmt::format("matrix product of m {}, n {}, k {}, {} times", m, n, k, batchCount),
          [=]() mutable {
            for (int i = 0; i < batchCount; ++i) {
              multiply(product, a, b, c);
              a.data += strideA * static_cast<int64_t>(a.element());
              b.data += strideB * static_cast<int64_t>(b.element());
              c.data += strideC * static_cast<int64_t>(c.element());
            }
          });
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                            int k, const void* alpha, const void* A, cudaDataType Atype, int lda, const void* B,
                            cudaDataType Btype, int ldb, const void* beta, void* C, cudaDataType Ctype, int ldc,
                            cublasComputeType_t computeType, cublasGemmAlgo_t algo) {
  return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B, Btype, ldb, 0, beta, C,
                                    Ctype, ldc, 0, 1, computeType, algo);
}

}  // extern "C"
