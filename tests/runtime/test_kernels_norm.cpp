// max_abs and sum_squares: against double, and the same integers however the data is cut.
#include "runtime/kernel_test.h"
#include "runtime/kernels.h"

namespace trencadis {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
using Words = std::vector<int64_t>;

Words max_abs(const std::vector<float>& x, int64_t start = 0) {
  return test::same_bits([&](test::Buffers& b) {
           View out = b.inout(Words{start});
           b.kernels().max_abs(out, b.in(x));
         })
      .get<int64_t>();
}

Words sum_squares(const std::vector<float>& x, int64_t max_bits, const Words& start = {0, 0}) {
  return test::same_bits([&](test::Buffers& b) {
           View out = b.inout(start);
           b.kernels().sum_squares(out, b.in(x), b.in(Words{max_bits}));
         })
      .get<int64_t>();
}

int64_t bits_of(float x) { return std::bit_cast<int32_t>(x); }

double norm(const std::vector<float>& x) {
  const int64_t max_bits = max_abs(x)[0];
  const Words sum = sum_squares(x, max_bits);
  const double squares =
      static_cast<double>(sum[0]) * kSquareUnit + static_cast<double>(sum[1]) * kSquareUnit * kSquareUnit;
  return static_cast<double>(std::bit_cast<float>(static_cast<int32_t>(max_bits))) * std::sqrt(squares);
}

TEST_CASE("norm: equals a sum in double for all sizes and magnitudes") {
  for (int64_t n : {1, 2, 15, 16, 17, 1000, 16384, 40000, 100003}) {
    for (float magnitude : {1e-30f, 1e-3f, 1.0f, 1e30f}) {
      const auto x = test::random_floats(n, 1, magnitude);
      double want = 0;
      for (float value : x) want += static_cast<double>(value) * static_cast<double>(value);
      want = std::sqrt(want);
      // Each square loses less than 2^-56 of the largest one, so the sum less than n 2^-56 of it.
      CHECK(std::abs(norm(x) - want) <= 1e-11 * want);
    }
  }
}

TEST_CASE("norm: the words are the definition's, to the last bit") {
  const auto x = test::random_floats(1001, 4, 3);
  const float top = std::bit_cast<float>(static_cast<int32_t>(max_abs(x)[0]));
  Words want = {0, 0};
  for (float value : x) {
    const double r = static_cast<double>(value) * (1 / static_cast<double>(top)), square = r * r * (1 << 28);
    want[0] += static_cast<int64_t>(std::floor(square));
    want[1] += static_cast<int64_t>(std::floor((square - std::floor(square)) * (1 << 28)));
  }
  CHECK(sum_squares(x, bits_of(top)) == want);
}

TEST_CASE("norm: small values beside a large one are not lost") {
  std::vector<float> x(10001, 1e-6f);
  x[77] = 1;
  CHECK(std::abs(norm(x) - std::sqrt(1 + 10000 * 1e-12)) < 1e-12);
}

TEST_CASE("norm: the integers are those of the whole, for any cut of the data") {
  const auto x = test::random_floats(70001, 2);
  const Words top = max_abs(x), whole = sum_squares(x, top[0]);
  for (size_t cut : {1u, 16u, 333u, 35000u, 70000u}) {
    const std::vector<float> first(x.begin(), x.begin() + static_cast<long>(cut)),
        rest(x.begin() + static_cast<long>(cut), x.end());
    CHECK(max_abs(rest, max_abs(first)[0]) == top);
    CHECK(sum_squares(first, top[0], sum_squares(rest, top[0])) == whole);
  }
}

TEST_CASE("norm: max_abs orders inf above all numbers and NaN above inf, wherever they are") {
  for (size_t at : {0u, 15u, 16u, 40u}) {
    auto x = test::random_floats(41, 3);
    x[at] = -kInf;
    CHECK(max_abs(x)[0] == bits_of(kInf));
    x[(at + 7) % x.size()] = -kNaN;
    CHECK(max_abs(x)[0] > bits_of(kInf));
  }
  CHECK(max_abs({-0.0f, 1e-45f, 0.0f})[0] == 1);  // the smallest subnormal number
  CHECK(max_abs({-3.0f}, bits_of(5.0f))[0] == bits_of(5.0f));
}

TEST_CASE("norm: all zeros, nothing, and maxima without a norm") {
  CHECK(max_abs(std::vector<float>(100, -0.0f))[0] == 0);
  CHECK(max_abs({}, 3)[0] == 3);
  for (float top : {0.0f, kInf, kNaN}) CHECK(sum_squares({1.0f, kNaN}, bits_of(top), {4, 5}) == Words{4, 5});
  CHECK(sum_squares({-2.0f, 1.0f}, bits_of(2.0f)) == Words{(int64_t{1} << 28) + (int64_t{1} << 26), 0});
}

TEST_CASE("norm: refuses other types") {
  Context context(make_cpu_backend());
  test::Buffers b(context);
  View ints = b.out<int32_t>(4), words = b.out<int64_t>(2);
  test::expect_error([&] { context.kernels().max_abs(words, ints); }, "max_abs: x is i32");
  test::expect_error([&] { context.kernels().sum_squares(words.slice(0, 1), b.in(std::vector<float>(3)), words); },
                     "2 are needed");
}

}  // namespace
}  // namespace trencadis
