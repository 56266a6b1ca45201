// product() against its definition: each element is chains of fma over pieces of K, in the order that product.h states.
//
// The reference is the definition written out, one std::fma after the other, so results must be equal to the bit: for
// all cuts into tiles, groups and threads, for edges, and for both forms of the product.
#include <cmath>

#include "runtime/cpu/product.h"
#include "runtime/kernel_test.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

struct Shape {
  int64_t M, N, K;
};
// Less than a tile, a tile and one more, ragged; K of one, two and three pieces, equal and not; sides that make one
// group, several, and on each of three threads full ones, in each direction; enough work for threads, and too little.
const std::vector<Shape> kShapes = {{1, 1, 1},      {14, 32, 16},    {15, 33, 17},   {6, 16, 512},   {5, 3, 513},
                                    {29, 70, 1025}, {70, 29, 600},   {300, 100, 40}, {100, 300, 40}, {17, 600, 130},
                                    {600, 17, 130}, {128, 128, 128}, {1600, 20, 30}, {20, 1600, 30}};

// Matrices with gaps between their rows, which are NaN: a product that read one would be NaN itself.
struct Matrix {
  std::vector<float> values;
  int64_t ld;
};

Matrix random_matrix(int64_t rows, int64_t columns, uint64_t key, int64_t gap) {
  Matrix m{std::vector<float>(static_cast<size_t>(rows * (columns + gap)), std::nanf("")), columns + gap};
  const auto values = random_floats(rows * columns, key);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(values.begin() + r * columns, columns, m.values.begin() + r * m.ld);
  return m;
}

struct Case {
  Shape shape;
  bool trans_a, trans_b;
  Matrix a, b;
  std::vector<float> bias, before;  // before: (M,N)

  Case(Shape s, bool ta, bool tb)
      : shape(s),
        trans_a(ta),
        trans_b(tb),
        a(ta ? random_matrix(s.K, s.M, 1, 5) : random_matrix(s.M, s.K, 1, 5)),
        b(tb ? random_matrix(s.N, s.K, 2, 3) : random_matrix(s.K, s.N, 2, 3)),
        bias(random_floats(s.N, 3)),
        before(random_floats(s.M * s.N, 4)),
        pieces_(chains()) {}

  Operand left() const { return {a.values.data(), a.ld, trans_a}; }
  Operand right() const { return {b.values.data(), b.ld, trans_b}; }

  // (M,N), from what its elements start with.
  std::vector<float> want(std::vector<float> c) const {
    for (const auto& sums : pieces_)
      for (size_t i = 0; i < c.size(); ++i) c[i] += sums[i];
    return c;
  }

 private:
  std::vector<std::vector<float>> pieces_;  // of K; (M,N) each

  std::vector<std::vector<float>> chains() const {
    const auto [M, N, K] = shape;
    const float *left = a.values.data(), *right = b.values.data();
    const int64_t count = (K + 511) / 512, depth = (K + count - 1) / count;
    std::vector<std::vector<float>> all;
    for (int64_t k = 0; k < K; k += depth) {
      std::vector<float>& sums = all.emplace_back(static_cast<size_t>(M * N), 0.0f);
      for (int64_t m = 0; m < M; ++m)
        for (int64_t n = 0; n < N; ++n) {
          float sum = 0;
          for (int64_t i = k; i < std::min(k + depth, K); ++i)
            sum = std::fma(left[trans_a ? i * a.ld + m : m * a.ld + i], right[trans_b ? n * b.ld + i : i * b.ld + n],
                           sum);
          sums[static_cast<size_t>(m * N + n)] = sum;
        }
    }
    return all;
  }
};

template <typename Body>
void for_cases(const Body& body) {
  for (const Shape& shape : kShapes)
    for (int layout = 0; layout < 4; ++layout) {
      CAPTURE(shape.M);
      CAPTURE(shape.N);
      CAPTURE(shape.K);
      CAPTURE(layout);
      body(Case(shape, layout & 1, layout & 2));
    }
}

}  // namespace

TEST_CASE("product: on any number of threads, each element is the chain that K alone gives") {
  ThreadPool one(1), three(3);
  Workspace workspace;
  for_cases([&](const Case& x) {
    const auto [M, N, K] = x.shape;
    const std::vector<float> zeros(static_cast<size_t>(M * N), 0.0f);
    std::vector<float> rows_of_bias;
    for (int64_t m = 0; m < M; ++m) rows_of_bias.insert(rows_of_bias.end(), x.bias.begin(), x.bias.end());
    for (ThreadPool* pool : {&one, &three}) {
      std::vector<float> c(zeros.size(), std::nanf(""));  // is written, not read
      product(*pool, workspace, c.data(), x.left(), x.right(), M, N, K);
      CHECK(c == x.want(zeros));
      c.assign(c.size(), std::nanf(""));
      product(*pool, workspace, c.data(), x.left(), x.right(), M, N, K, {.bias = x.bias.data()});
      CHECK(c == x.want(rows_of_bias));
      c = x.before;
      product(*pool, workspace, c.data(), x.left(), x.right(), M, N, K, {.result = true});
      CHECK(c == x.want(x.before));
    }
  });
}

TEST_CASE("product: on the calling thread the same bits, and nothing between the rows") {
  for_cases([&](const Case& x) {
    const auto [M, N, K] = x.shape;
    const int64_t ldc = N + 7;
    for (const bool add : {false, true}) {
      const std::vector<float> want = x.want(add ? x.before : std::vector<float>(x.before.size(), 0.0f));
      std::vector<float> c(static_cast<size_t>(M * ldc), -1.0f);
      for (int64_t m = 0; m < M; ++m) std::copy_n(x.before.begin() + m * N, N, c.begin() + m * ldc);
      product(c.data(), ldc, x.left(), x.right(), M, N, K, {.result = add});
      for (int64_t m = 0; m < M; ++m) {
        CHECK(std::equal(c.begin() + m * ldc, c.begin() + m * ldc + N, want.begin() + m * N));
        CHECK(std::all_of(c.begin() + m * ldc + N, c.begin() + (m + 1) * ldc, [](float gap) { return gap == -1.0f; }));
      }
    }
  });
}

TEST_CASE("product: a row has the same bits whichever rows stand beside it") {
  const int64_t M = 61, N = 45, K = 700;
  const auto a = random_floats(M * K, 1), b = random_floats(N * K, 2);
  ThreadPool pool(2);
  Workspace workspace;
  const auto rows = [&](int64_t first, int64_t count) {
    std::vector<float> c(static_cast<size_t>(count * N));
    product(pool, workspace, c.data(), {a.data() + first * K, K, false}, {b.data(), K, true}, count, N, K);
    return c;
  };
  const auto all = rows(0, M);
  for (int64_t m = 0; m < M; ++m)
    CHECK(rows(m, 1) == std::vector<float>(all.begin() + m * N, all.begin() + (m + 1) * N));
}

TEST_CASE("product: over nothing it is the start") {
  ThreadPool pool(2);
  Workspace workspace;
  const std::vector<float> none, bias = {1, 2, 3};
  std::vector<float> c(6, std::nanf(""));
  product(pool, workspace, c.data(), {none.data(), 0, false}, {none.data(), 3, false}, 2, 3, 0, {.bias = bias.data()});
  CHECK(c == std::vector<float>{1, 2, 3, 1, 2, 3});
  product(c.data(), 3, {none.data(), 0, false}, {none.data(), 3, false}, 2, 3, 0);
  CHECK(c == std::vector<float>(6, 0.0f));
}
