// gemm(): a library's matrix product, for what is not training on the CPU: the simulator's cuBLAS computes with it, and
// tests measure our own product (runtime/cpu/product.h) against it. cblas_sgemm where OpenBLAS is found, else Eigen.
#pragma once

#include <cstdint>

namespace trencadis {

// c (M,N) = alpha * op(a) (M,K) * op(b) (K,N) + beta * c, row-major, on the calling thread; may be called from many.
// op transposes when trans_ is set: a is then stored (K,M), b (N,K). ld: elements from one row to the next, as stored.
// beta = 0 writes c without reading it. The bits depend on the arguments' sizes and values, not on their addresses;
// they may depend on M and N as well as K (kernels for edges).
void gemm(bool trans_a, bool trans_b, int64_t M, int64_t N, int64_t K, float alpha, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

}  // namespace trencadis
