// Matrix products, and the gradient of a bias.
//
// A product is cut into strips of its result by shape alone; each strip is one gemm() on one thread. A library that
// parallelises by itself cuts by the number of threads, and with its cuts move the bits.
#include "runtime/cpu/argument.h"
#include "runtime/cpu/column_sums.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/gemm.h"

namespace trencadis {

namespace {

// Strips of an (M,N) result, across its longer side.
//
// gemm() copies both operands of a strip into its own order first: a strip's own part of the one, and all of the other.
// So strips are few and thick, cut along one side only: cut along both, both operands would be copied again and again.
// They are a power of two, for processors come in such numbers. Measured on two cores over the products of GPTs with
// C = 128, 384 and 768, in GF/s: two halves 250 to 300, 4 or 8 strips as here 0 to 10 % less, 4 by 2 tiles up to 30 %.
struct Strips {
  int64_t M, N;
  bool of_rows;
  int64_t size = 0, count = 1;  // of the longer side's rows or columns; the last strip may be thinner

  Strips(int64_t m, int64_t n, int64_t K) : M(m), N(n), of_rows(m >= n) {
    constexpr int64_t kThick = 512, kThinnest = 32, kWanted = 4, kMost = 64;
    constexpr int64_t kLeastWork = 2'000'000;  // multiplications of a strip; 20 us
    const int64_t longer = std::max(M, N);
    const auto may_be = [&](int64_t strips) {
      if (strips > kMost || M * N * K < strips * kLeastWork) return false;
      return longer >= strips * (strips <= kWanted ? kThinnest : kThick);
    };
    while (may_be(2 * count)) count *= 2;
    size = ((longer + count - 1) / count + 15) / 16 * 16;  // gemm kernels compute 16 at a time
    count = (longer + size - 1) / size;
  }

  // body(first row, rows, first column, columns) for every strip.
  template <typename Body>
  void run(ThreadPool& pool, const Body& body) const {
    pool.run(count, [&](int64_t strip) {
      const int64_t begin = strip * size;
      if (of_rows)
        body(begin, std::min(size, M - begin), 0, N);
      else
        body(0, M, begin, std::min(size, N - begin));
    });
  }
};

}  // namespace

void CpuKernels::matmul(View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K, bool trans_a, bool trans_b,
                        bool accumulate) {
  float* out = argument<float>("matmul", "c", c, M * N);
  const float* left = argument<float>("matmul", "a", a, M * K);
  const float* right = argument<float>("matmul", "b", b, K * N);
  if (M == 0 || N == 0) return;
  const int64_t lda = trans_a ? M : K, ldb = trans_b ? K : N;
  Strips(M, N, K).run(pool_, [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
    gemm(trans_a, trans_b, rows, columns, K, 1.0f, left + (trans_a ? row : row * lda), lda,
         right + (trans_b ? column * ldb : column), ldb, accumulate ? 1.0f : 0.0f, out + row * N + column, N);
  });
}

void CpuKernels::linear(View y, ConstView x, ConstView w, ConstView bias, int64_t N, int64_t C, int64_t K) {
  if (!bias) return matmul(y, x, w, N, K, C, false, true, false);
  float* out = argument<float>("linear", "y", y, N * K);
  const float* in = argument<float>("linear", "x", x, N * C);
  const float* weight = argument<float>("linear", "w", w, K * C);
  const float* offset = argument<float>("linear", "bias", bias, K);
  if (N == 0 || K == 0) return;
  Strips(N, K, C).run(pool_, [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
    for (int64_t r = row; r < row + rows; ++r) std::copy_n(offset + column, columns, out + r * K + column);
    gemm(false, true, rows, columns, C, 1.0f, in + row * C, C, weight + column * C, C, 1.0f, out + row * K + column, K);
  });
}

void CpuKernels::bias_backward(View db, ConstView dy, int64_t N, int64_t K, bool accumulate) {
  if (!db) return;  // frozen
  float* out = argument<float>("bias_backward", "db", db, K);
  const float* in = argument<float>("bias_backward", "dy", dy, N * K);
  ColumnSums sums(N, K);
  pool_.run(sums.chunks.count, [&](int64_t chunk) {
    float* partial = sums.partial(chunk);
    std::fill_n(partial, K, 0.0f);
    // Four rows at a time, one after another into the sum: the partial sums are read and written a quarter as often.
    const int64_t last = sums.chunks.end(chunk, N);
    for (int64_t n = sums.chunks.begin(chunk); n < last; n += 4) {
      const int64_t rows = std::min<int64_t>(4, last - n);
      vec::for_lanes(K, [&](int64_t k, int64_t lanes) {
        vec::F32 sum = vec::load(partial + k, lanes);
        for (int64_t r = 0; r < rows; ++r) sum += vec::load(in + (n + r) * K + k, lanes);
        vec::store(partial + k, sum, lanes);
      });
    }
  });
  sums.add_up(pool_, out, accumulate);
}

}  // namespace trencadis
