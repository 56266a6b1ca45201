// bias_gelu and its backward pass against the formula of kernels.h in double.
#include "kernel_test.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

const double kC = std::sqrt(2 / M_PI);
double tanh_argument(double u) { return kC * (u + 0.044715 * u * u * u); }
double gelu(double u) { return 0.5 * u * (1 + std::tanh(tanh_argument(u))); }
double gelu_derivative(double u) {
  const double t = std::tanh(tanh_argument(u));
  return 0.5 * (1 + t) + 0.5 * u * (1 - t * t) * kC * (1 + 3 * 0.044715 * u * u);
}

struct Rows {
  int64_t N, K;
};
const std::vector<Rows> kRows = {{1, 1}, {1, 16}, {3, 15}, {2, 17}, {65, 33}, {40, 512}, {130, 100}, {3, 1536}};

}  // namespace

TEST_CASE("bias_gelu") {
  for (const Rows& r : kRows) {
    CAPTURE(r.N);
    CAPTURE(r.K);
    const auto x = random_floats(r.N * r.K, 1, 6), bias = random_floats(r.K, 2);
    std::vector<double> want(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      want[i] = gelu(static_cast<double>(x[i] + bias[i % static_cast<size_t>(r.K)]));
    const auto got =
        same_bits([&](Buffers& b) { b.kernels().bias_gelu(b.out(r.N * r.K), b.in(x), b.in(bias), r.N, r.K); }).get();
    // u s: s within about 2 ulp of a number at most 1, u at most 7.
    CHECK(max_error(got, want) <= 7 * 4.0 / (1 << 24));
  }
}

TEST_CASE("gelu far from zero") {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {0.0f, -0.0f, 1e-30f, 12.0f, -12.0f, 1e20f, -1e20f, 3e38f, -3e38f, inf, 100.0f, -100.0f};
  const int64_t n = static_cast<int64_t>(x.size());
  const std::vector<float> zeros(x.size(), 0.0f), ones(x.size(), 1.0f);
  const auto y = same_bits([&](Buffers& b) { b.kernels().bias_gelu(b.out(n), b.in(x), b.in(zeros), 1, n); }).get();
  const auto dx = same_bits([&](Buffers& b) {
                    View out = b.out(n), dbias = b.out(n);
                    b.kernels().bias_gelu_backward(out, dbias, b.in(ones), b.in(x), b.in(zeros), 1, n, false);
                  }).get();
  for (size_t i = 0; i < x.size(); ++i) {
    CAPTURE(x[i]);
    if (x[i] >= 12) {
      CHECK(y[i] == x[i]);
      CHECK(dx[i] == 1);
    } else if (x[i] <= -12) {
      CHECK(std::abs(y[i]) < 1e-30f);
      CHECK(std::abs(dx[i]) < 1e-30f);
    } else {
      CHECK(y[i] == x[i] / 2);
      CHECK(dx[i] == 0.5f);
    }
  }
  const std::vector<float> nan = {std::numeric_limits<float>::quiet_NaN()}, one = {1.0f};
  CHECK(
      std::isnan(same_bits([&](Buffers& b) { b.kernels().bias_gelu(b.out(1), b.in(nan), b.in(one), 1, 1); }).get()[0]));
  CHECK(std::isnan(same_bits([&](Buffers& b) {
                     View out = b.out(1), dbias = b.out(1);
                     b.kernels().bias_gelu_backward(out, dbias, b.in(one), b.in(nan), b.in(one), 1, 1, false);
                   }).get()[0]));
}

TEST_CASE("bias_gelu_backward") {
  for (const Rows& r : kRows) {
    CAPTURE(r.N);
    CAPTURE(r.K);
    const int64_t size = r.N * r.K;
    const auto x = random_floats(size, 3, 4), dy = random_floats(size, 4);
    const auto bias = random_floats(r.K, 5), before = random_floats(r.K, 6);
    std::vector<double> dx(x.size()), dbias(bias.size(), 0);
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t k = i % bias.size();
      dx[i] = static_cast<double>(dy[i]) * gelu_derivative(static_cast<double>(x[i] + bias[k]));
      dbias[k] += dx[i];
    }
    const Outputs plain = same_bits([&](Buffers& b) {
      View out = b.out(size), db = b.out(r.K);
      b.kernels().bias_gelu_backward(out, db, b.in(dy), b.in(x), b.in(bias), r.N, r.K, false);
    });
    const double tolerance = 20.0 / (1 << 24);  // the derivative is below 1.13, its terms below 3; ten roundings
    CHECK(max_error(plain.get(0), dx) <= tolerance);
    CHECK(max_error(plain.get(1), dbias) <= tolerance * static_cast<double>(r.N));

    const Outputs in_place = same_bits([&](Buffers& b) {
      View d = b.inout(dy), db = b.inout(before);
      b.kernels().bias_gelu_backward(d, db, d, b.in(x), b.in(bias), r.N, r.K, true);
    });
    CHECK(in_place.bytes()[0] == plain.bytes()[0]);
    std::vector<float> sum(before);
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += plain.get(1)[k];
    CHECK(in_place.get(1) == sum);

    const Outputs frozen = same_bits([&](Buffers& b) {
      b.kernels().bias_gelu_backward(b.out(size), View(), b.in(dy), b.in(x), b.in(bias), r.N, r.K, false);
    });
    CHECK(frozen.bytes()[0] == plain.bytes()[0]);
  }
}

TEST_CASE("the bias's gradient is the derivative of the sum") {
  const std::vector<float> x = random_floats(9, 7, 2), bias = {0.3f}, ones(9, 1.0f);
  const auto dbias = same_bits([&](Buffers& b) {
                       View out = b.out(9), db = b.out(1);
                       b.kernels().bias_gelu_backward(out, db, b.in(ones), b.in(x), b.in(bias), 9, 1, false);
                     }).get(1);
  double above = 0, below = 0;
  for (float value : x) {
    above += gelu(static_cast<double>(value) + 0.301);
    below += gelu(static_cast<double>(value) + 0.299);
  }
  CHECK(static_cast<double>(dbias[0]) == doctest::Approx((above - below) / 0.002).epsilon(1e-4));
}

TEST_CASE("arguments that do not fit are refused") {
  Context context(make_cpu_backend());
  const Tensor six = Tensor::zeros(context, {2, 3}), two = Tensor::zeros(context, {2});
  Kernels& k = context.kernels();
  expect_error([&] { k.bias_gelu(six, six, two, 2, 3); }, "bias_gelu: bias has 2 elements");
  expect_error([&] { k.bias_gelu_backward(six, two, six, six, six, 2, 3, false); }, "bias_gelu_backward: dbias");
}
