// Matrix products, and the gradient of a bias.
//
// A product is cut into tiles of its result by shape alone; each tile is one gemm() on one thread. A library that
// parallelises by itself cuts by the number of threads, and with its cuts move the bits. Measured on two cores over
// forward, backward and weight-gradient shapes of GPTs with C = 128, 384 and 768 (OpenBLAS, AVX-512): 185 to 208 GF/s,
// 0 to 7 % below two undivided products on one core each.
#include "runtime/cpu/argument.h"
#include "runtime/cpu/column_sums.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/gemm.h"

namespace trencadis {

namespace {

// A grid of tiles over an (M,N) result.
struct Tiles {
  int64_t M, N;
  int64_t down = 1, across = 1;   // tiles in each direction
  int64_t rows = 0, columns = 0;  // of a tile; the last ones may be smaller

  // Halves the longer side of the tile until there are enough tiles to share out and each fits the cache well, but
  // leaves a tile with enough work that packing its operands, which every tile does anew, stays a small part.
  Tiles(int64_t m, int64_t n, int64_t K) : M(m), N(n) {
    constexpr int64_t kEnoughTiles = 4, kSmallestSide = 64, kLargestTile = 512 * 1024;
    constexpr int64_t kLeastWork = 4'000'000;  // multiplications; 40 us
    for (;;) {
      rows = part(M, down);
      columns = part(N, across);
      if (down * across >= kEnoughTiles && rows * columns <= kLargestTile) break;
      if (std::max(rows, columns) < 2 * kSmallestSide || rows * columns * K < 2 * kLeastWork) break;
      (rows >= columns ? down : across) *= 2;
    }
    down = (M + rows - 1) / rows;
    across = (N + columns - 1) / columns;
  }

  // One of `parts` parts of n, rounded up to the 16 that gemm kernels compute at a time.
  static int64_t part(int64_t n, int64_t parts) { return ((n + parts - 1) / parts + 15) / 16 * 16; }

  // body(first row, rows, first column, columns) for every tile.
  template <typename Body>
  void run(ThreadPool& pool, const Body& body) const {
    pool.run(down * across, [&](int64_t tile) {
      const int64_t row = tile / across * rows, column = tile % across * columns;
      body(row, std::min(rows, M - row), column, std::min(columns, N - column));
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
  Tiles(M, N, K).run(pool_, [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
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
  Tiles(N, K, C).run(pool_, [&](int64_t row, int64_t rows, int64_t column, int64_t columns) {
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
