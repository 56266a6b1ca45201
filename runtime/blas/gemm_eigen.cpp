// gemm() on Eigen; CMake takes this file where it finds no OpenBLAS.
#include <cmath>

#include "runtime/blas/gemm.h"
#include "runtime/check.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes its own _mm512_undefined_ps() for a mistake wherever Eigen's loops inline it (its bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <Eigen/Core>

namespace trencadis {

namespace {

// For products so thin that Eigen would take its matrix-vector or coefficient path, which starts vectors at aligned
// addresses: every element is one chain of fma in the order of k.
void thin_gemm(bool trans_a, bool trans_b, int64_t M, int64_t N, int64_t K, float alpha, const float* a, int64_t lda,
               const float* b, int64_t ldb, float* c, int64_t ldc) {
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t n = 0; n < N; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < K; ++k)
        sum = std::fma(trans_a ? a[k * lda + m] : a[m * lda + k], trans_b ? b[n * ldb + k] : b[k * ldb + n], sum);
      c[m * ldc + n] = std::fma(alpha, sum, c[m * ldc + n]);
    }
  }
}

}  // namespace

// Eigen's matrix-matrix path packs both operands before it multiplies, so that addresses change no bit. It runs on this
// thread alone: no OpenMP is switched on.
void gemm(bool trans_a, bool trans_b, int64_t M, int64_t N, int64_t K, float alpha, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  CHECK(M >= 0 && N >= 0 && K >= 0, "gemm of M {}, N {}, K {}", M, N, K);
  if (beta != 1.0f)
    for (int64_t m = 0; m < M; ++m)
      for (int64_t n = 0; n < N; ++n) c[m * ldc + n] = beta == 0.0f ? 0.0f : beta * c[m * ldc + n];
  if (M == 0 || N == 0 || K == 0) return;
  if (M == 1 || N == 1 || M + N + K < 32) return thin_gemm(trans_a, trans_b, M, N, K, alpha, a, lda, b, ldb, c, ldc);

  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Operand = Eigen::Map<const Matrix, Eigen::Unaligned, Eigen::OuterStride<> >;
  const Operand left(a, trans_a ? K : M, trans_a ? M : K, Eigen::OuterStride<>(lda));
  const Operand right(b, trans_b ? N : K, trans_b ? K : N, Eigen::OuterStride<>(ldb));
  Eigen::Map<Matrix, Eigen::Unaligned, Eigen::OuterStride<> > result(c, M, N, Eigen::OuterStride<>(ldc));
  if (trans_a && trans_b)
    result.noalias() += alpha * left.transpose() * right.transpose();
  else if (trans_a)
    result.noalias() += alpha * left.transpose() * right;
  else if (trans_b)
    result.noalias() += alpha * left * right.transpose();
  else
    result.noalias() += alpha * left * right;
}

}  // namespace trencadis
