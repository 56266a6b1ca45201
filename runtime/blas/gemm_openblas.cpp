// gemm() on OpenBLAS; CMake takes this file where it finds that library, else gemm_eigen.cpp.
#include <cblas.h>

#include <atomic>
#include <limits>
#include <mutex>

#include "runtime/blas/gemm.h"
#include "runtime/check.h"

// In every OpenBLAS build, but not in every cblas.h.
extern "C" {
void openblas_set_num_threads(int threads);
int openblas_get_parallel();  // 0: sequential build, 1: pthreads, 2: OpenMP
}

namespace trencadis {

namespace {

// A caller wants one thread's work: the library would cut it by the number of threads, and with the cut move the bits.
// OpenMP keeps its limit per thread, so each thread says it once; one at a time, because OpenBLAS frees buffers on the
// way.
void limit_to_one_thread() {
  static std::mutex mutex;
  // Atomic for ThreadSanitizer, to which the simulator's CUDA threads are threads of their own on one host thread.
  thread_local std::atomic<bool> done = false;
  if (done) return;
  const std::lock_guard lock(mutex);
  openblas_set_num_threads(1);
  done = true;
}

// The sequential build takes its work buffers from a table without a lock, and may give two threads the same one:
// with four threads on two cores 10 of 160000 products were wrong (0.3.21, Debian's openblas-serial), silently.
// With that build products take turns. The builds with threads lock the table (192000 products, none wrong);
// CMake should find one.
std::unique_lock<std::mutex> turn() {
  static const bool sequential = openblas_get_parallel() == 0;
  static std::mutex mutex;
  return sequential ? std::unique_lock(mutex) : std::unique_lock<std::mutex>();
}

}  // namespace

void gemm(bool trans_a, bool trans_b, int64_t M, int64_t N, int64_t K, float alpha, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  for (int64_t size : {M, N, K, lda, ldb, ldc})
    CHECK(size >= 0 && size <= std::numeric_limits<int>::max(), "gemm of M {}, N {}, K {}: a size beyond cblas' int", M,
          N, K);
  if (M == 0 || N == 0) return;
  limit_to_one_thread();
  const auto lock = turn();
  const auto i = [](int64_t size) { return static_cast<int>(size); };
  cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans, i(M), i(N), i(K),
              alpha, a, i(lda), b, i(ldb), beta, c, i(ldc));
}

}  // namespace trencadis
