// Philox against the authors' known answers, and the normal numbers that initialise weights.
#include "kernel_test.h"

using namespace trencadis;
using namespace trencadis::test;

TEST_CASE("philox4x32-10 gives the known answers of Random123") {
  using Words = std::array<uint32_t, 4>;
  CHECK(philox({0, 0, 0, 0}, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t ones = 0xffffffff;
  CHECK(philox({ones, ones, ones, ones}, ~uint64_t{0}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("keys depend on every part and on their order") {
  CHECK(random_key(1, 2) != random_key(2, 1));
  CHECK(random_key(0) != random_key(0, 0));
  CHECK(hash_name("h.0") != hash_name("h.1"));
  CHECK(hash_name("") == 0xcbf29ce484222325ull);
  CHECK(hash_name("a") == 0xaf63dc4c8601ec8cull);  // FNV's published test vector
}

TEST_CASE("normal numbers: formula, mean, deviation, tails") {
  const int64_t n = 1 << 20;
  const std::vector<float> x = same_bits([&](Buffers& b) { b.kernels().normal(b.out(n), 0.02f, 77, 0); }).get();
  const auto words = philox({0, 0, 0, 0}, 77);
  const double r = std::sqrt(-2 * std::log((words[0] + 1.0) / 4294967296.0)),
               angle = 2 * M_PI * words[1] / 4294967296.0;
  CHECK(x[0] == doctest::Approx(0.02 * r * std::cos(angle)));
  CHECK(x[1] == doctest::Approx(0.02 * r * std::sin(angle)));

  double sum = 0, squares = 0, fourth = 0, neighbours = 0;
  int64_t beyond_2 = 0, beyond_4 = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double z = x[static_cast<size_t>(i)] / 0.02;
    REQUIRE(std::isfinite(z));
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
    neighbours += z * (x[static_cast<size_t>(i ^ 1)] / 0.02);  // the two numbers of one pair
    beyond_2 += std::abs(z) > 2;
    beyond_4 += std::abs(z) > 4;
  }
  // Five standard errors each: 1, sqrt(2), sqrt(96) and sqrt(2) over sqrt(n) for the four moments.
  const double unit = 5 / std::sqrt(static_cast<double>(n)), count = static_cast<double>(n);
  CHECK(std::abs(sum / count) < unit);
  CHECK(std::abs(squares / count - 1) < unit * std::sqrt(2.0));
  CHECK(std::abs(fourth / count - 3) < unit * std::sqrt(96.0));
  CHECK(std::abs(neighbours / count) < unit * std::sqrt(2.0));
  CHECK(std::abs(static_cast<double>(beyond_2) / count - 0.0455003) < unit * std::sqrt(0.0455003));
  CHECK(beyond_4 > 66 - 41);  // 66.4 are expected, with a deviation of 8.1
  CHECK(beyond_4 < 67 + 41);
}

TEST_CASE("a range of normal numbers is a slice of the whole, whatever the range") {
  const int64_t n = 5000;
  const std::vector<float> whole = same_bits([&](Buffers& b) { b.kernels().normal(b.out(n), 1, 5, 0); }).get();
  for (auto [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {1, 1}, {2, 5}, {3, 2}, {1023, 2050}, {4999, 1}}) {
    const std::vector<float> part = same_bits([&, first = first, count = count](Buffers& b) {
                                      b.kernels().normal(b.out(count), 1, 5, first);
                                    }).get();
    CHECK(std::equal(part.begin(), part.end(), whole.begin() + first));
  }
  // Beyond 2^34 elements the counter's second word counts.
  const int64_t far = (int64_t{1} << 34) + 2;
  const std::vector<float> a = same_bits([&](Buffers& b) { b.kernels().normal(b.out(4), 1, 5, far); }).get();
  const std::vector<float> b =
      same_bits([&](Buffers& buffers) { buffers.kernels().normal(buffers.out(4), 1, 5, far + 2); }).get();
  CHECK(a[2] == b[0]);
  CHECK(a[3] == b[1]);
  CHECK(a[0] != whole[2]);
}
