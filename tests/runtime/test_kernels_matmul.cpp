// matmul, linear, bias_backward against loops in double.
//
// Tolerance: a sum of K products of values below 1, rounded in f32 in some order, is off by at most about K * 2^-24 * K
// and, as errors of random sign add up like a random walk, by sqrt(K) * 2^-24 * sqrt(K) * a few in practice. The tests
// take 4 * K * 2^-24: far below the smallest wrong result, one product missing or counted twice.
#include <atomic>
#include <thread>

#include "kernel_test.h"
#include "runtime/blas/gemm.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

constexpr double kHalfUlp = 1.0 / (1 << 24);

struct Product {
  int64_t M, N, K;
};
// Sizes of 1, ragged ones, and some that are shared out among threads, along rows or columns, in few parts and many.
const std::vector<Product> kProducts = {
    {1, 1, 1},    {1, 7, 3},     {5, 1, 9},       {3, 4, 1},       {1, 130, 64},    {17, 31, 13},    {16, 16, 16},
    {65, 33, 70}, {129, 2, 257}, {300, 260, 120}, {131, 700, 100}, {700, 131, 100}, {4200, 40, 100}, {200, 150, 100}};

// The element (m,n) of op(a) op(b).
double element(const std::vector<float>& a, const std::vector<float>& b, const Product& p, bool trans_a, bool trans_b,
               int64_t m, int64_t n) {
  double sum = 0;
  for (int64_t k = 0; k < p.K; ++k)
    sum += static_cast<double>(a[static_cast<size_t>(trans_a ? k * p.M + m : m * p.K + k)]) *
           static_cast<double>(b[static_cast<size_t>(trans_b ? n * p.K + k : k * p.N + n)]);
  return sum;
}

}  // namespace

TEST_CASE("matmul in all four layouts, writing and accumulating") {
  for (const Product& p : kProducts) {
    CAPTURE(p.M);
    CAPTURE(p.N);
    CAPTURE(p.K);
    const auto a = random_floats(p.M * p.K, 1), b = random_floats(p.K * p.N, 2), c = random_floats(p.M * p.N, 3);
    for (int layout = 0; layout < 4; ++layout) {
      const bool trans_a = layout & 1, trans_b = layout & 2;
      std::vector<double> want(c.size()), added(c.size());
      for (int64_t m = 0; m < p.M; ++m)
        for (int64_t n = 0; n < p.N; ++n) {
          const size_t i = static_cast<size_t>(m * p.N + n);
          want[i] = element(a, b, p, trans_a, trans_b, m, n);
          added[i] = want[i] + static_cast<double>(c[i]);
        }
      const double tolerance = 4 * static_cast<double>(p.K + 1) * kHalfUlp;
      const auto written = same_bits([&](Buffers& buffers) {
        buffers.kernels().matmul(buffers.out(p.M * p.N), buffers.in(a), buffers.in(b), p.M, p.N, p.K, trans_a, trans_b,
                                 false);
      });
      CHECK(max_error(written.get(), want) <= tolerance);
      const auto accumulated = same_bits([&](Buffers& buffers) {
        buffers.kernels().matmul(buffers.inout(c), buffers.in(a), buffers.in(b), p.M, p.N, p.K, trans_a, trans_b, true);
      });
      CHECK(max_error(accumulated.get(), added) <= tolerance);
    }
  }
}

TEST_CASE("a product over nothing is zero, or leaves what is there") {
  const auto c = random_floats(6, 1);
  const std::vector<float> none;
  CHECK(same_bits([&](Buffers& b) {
          b.kernels().matmul(b.out(6), b.in(none), b.in(none), 2, 3, 0, false, false, false);
        }).get() == std::vector<float>(6, 0.0f));
  CHECK(same_bits([&](Buffers& b) {
          b.kernels().matmul(b.inout(c), b.in(none), b.in(none), 2, 3, 0, false, true, true);
        }).get() == c);
}

TEST_CASE("linear, with and without bias") {
  for (const Product& p : kProducts) {  // M rows, N features, K channels
    CAPTURE(p.M);
    CAPTURE(p.N);
    CAPTURE(p.K);
    const auto x = random_floats(p.M * p.K, 4), w = random_floats(p.N * p.K, 5), bias = random_floats(p.N, 6);
    std::vector<double> plain(static_cast<size_t>(p.M * p.N)), biased(plain.size());
    for (int64_t m = 0; m < p.M; ++m)
      for (int64_t n = 0; n < p.N; ++n) {
        const size_t i = static_cast<size_t>(m * p.N + n);
        plain[i] = element(x, w, p, false, true, m, n);
        biased[i] = plain[i] + static_cast<double>(bias[static_cast<size_t>(n)]);
      }
    const double tolerance = 4 * static_cast<double>(p.K + 1) * kHalfUlp;
    const auto without = same_bits(
        [&](Buffers& b) { b.kernels().linear(b.out(p.M * p.N), b.in(x), b.in(w), ConstView(), p.M, p.K, p.N); });
    CHECK(max_error(without.get(), plain) <= tolerance);
    const auto with = same_bits(
        [&](Buffers& b) { b.kernels().linear(b.out(p.M * p.N), b.in(x), b.in(w), b.in(bias), p.M, p.K, p.N); });
    CHECK(max_error(with.get(), biased) <= tolerance);
  }
}

TEST_CASE("products on many threads do not disturb each other") {
  // Ranks as threads call gemm() at the same time. A library that gives two of them one work buffer returns a wrong
  // product now and then; it shows when their operands differ, and when there are many.
  const int64_t M = 131, N = 352, K = 100;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const auto a = random_floats(M * K, 2 * t), b = random_floats(K * N, 2 * t + 1);
      std::vector<float> first, c(static_cast<size_t>(M * N));
      for (int i = 0; i < 1500; ++i) {
        gemm(false, false, M, N, K, 1, a.data(), K, b.data(), N, 0, c.data(), N);
        if (i == 0) first = c;
        wrong += c != first;
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("bias_backward sums columns, and completes the sum before it adds") {
  for (auto [N, K] : {std::pair<int64_t, int64_t>{1, 1},
                      {1, 17},
                      {7, 1},
                      {31, 16},
                      {33, 15},
                      {130, 40},
                      {2049, 65},
                      {5000, 3},
                      {64, 2500}}) {
    CAPTURE(N);
    CAPTURE(K);
    const auto dy = random_floats(N * K, 7), before = random_floats(K, 8);
    std::vector<double> want(static_cast<size_t>(K), 0);
    for (size_t i = 0; i < dy.size(); ++i) want[i % static_cast<size_t>(K)] += static_cast<double>(dy[i]);
    const auto fresh =
        same_bits([&, N = N, K = K](Buffers& b) { b.kernels().bias_backward(b.out(K), b.in(dy), N, K, false); }).get();
    // At most 64 + N / 64 + 32 additions in a row, of sums below N.
    CHECK(max_error(fresh, want) <= 4 * static_cast<double>(N) * kHalfUlp);
    std::vector<float> added(before);
    for (size_t k = 0; k < added.size(); ++k) added[k] += fresh[k];
    CHECK(same_bits([&, N = N, K = K](Buffers& b) {
            b.kernels().bias_backward(b.inout(before), b.in(dy), N, K, true);
          }).get() == added);
  }
  Context context(make_cpu_backend());
  context.kernels().bias_backward(View(), Tensor::zeros(context, {6}), 2, 3, false);  // frozen: nothing to do
}

TEST_CASE("arguments that do not fit are refused") {
  Context context(make_cpu_backend());
  Kernels& k = context.kernels();
  const Tensor six = Tensor::zeros(context, {2, 3}), twelve = Tensor::zeros(context, {3, 4});
  const Tensor eight = Tensor::zeros(context, {2, 4}), ints = Tensor::zeros(context, {12}, DType::i32);
  k.matmul(eight, six, twelve, 2, 4, 3, false, false, false);
  expect_error([&] { k.matmul(six, six, twelve, 2, 4, 3, false, false, false); }, "matmul: c has 6 elements");
  expect_error([&] { k.matmul(eight, six, six, 2, 4, 3, false, false, false); }, "matmul: b");
  expect_error([&] { k.matmul(eight, six, ints, 2, 4, 3, false, false, false); }, "i32");
  expect_error([&] { k.linear(eight, six, twelve, six.flat_slice(0, 3), 2, 3, 4); }, "linear: bias has 3 elements");
  expect_error([&] { k.bias_backward(six, six, 2, 4, false); }, "bias_backward: dy");
}
