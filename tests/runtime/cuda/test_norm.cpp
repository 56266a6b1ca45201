// max_abs and sum_squares on the device: the CPU's integers, to the bit.
#include "cuda_kernel_test.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
using Words = std::vector<int64_t>;

Words max_abs(DType type, bool device, const std::vector<float>& x, int64_t start = 0) {
  const Words before = {start};
  const auto call = [&](auto& b) {
    View out = b.inout(before);
    b.kernels().max_abs(out, b.values_in(x));
  };
  return (device ? on_device(type, call) : on_cpu(type, call)).template get<int64_t>(0);
}

Words sum_squares(DType type, bool device, const std::vector<float>& x, int64_t max_bits, const Words& start = {0, 0}) {
  const Words largest = {max_bits};
  const auto call = [&](auto& b) {
    View out = b.inout(start);
    b.kernels().sum_squares(out, b.values_in(x), b.in(largest));
  };
  return (device ? on_device(type, call) : on_cpu(type, call)).template get<int64_t>(0);
}

}  // namespace

TEST_CASE("both equal the CPU's for all sizes and magnitudes") {
  for (DType type : kFloatTypes)
    for (int64_t n : {1, 3, 4, 5, 8, 9, 257, 4100, 20001})
      for (float magnitude : {1e-30f, 1e-3f, 1e30f}) {
        CAPTURE(n);
        CAPTURE(magnitude);
        const auto x = random_floats(n, 1, magnitude);
        const Words largest = max_abs(type, true, x);
        CHECK(largest == max_abs(type, false, x));
        const Words got = sum_squares(type, true, x, largest[0], {3, 4});
        CHECK(got == sum_squares(type, false, x, largest[0], {3, 4}));
        CHECK(got[0] >= 3 + (1 << 28));  // the largest alone is 2^28 units
      }
}

TEST_CASE("the maximum is not lowered, and inf and NaN are above all") {
  const std::vector<float> x = {1, -2, 0.5f};
  CHECK(max_abs(DType::f32, true, x, std::bit_cast<int32_t>(3.0f))[0] == std::bit_cast<int32_t>(3.0f));
  CHECK(max_abs(DType::f32, true, {1, -kInf, 5})[0] == std::bit_cast<int32_t>(kInf));
  CHECK(max_abs(DType::f32, true, {kInf, kNaN, 5})[0] > std::bit_cast<int32_t>(kInf));
  CHECK(max_abs(DType::bf16, true, {kInf, kNaN, 5})[0] > std::bit_cast<int32_t>(kInf));
  CHECK(max_abs(DType::f32, true, {}) == Words{0});
}

TEST_CASE("nothing is added when the maximum is 0, inf or NaN") {
  const std::vector<float> x = {0, 1};
  for (int64_t bits : {int64_t{0}, int64_t{std::bit_cast<int32_t>(kInf)}, int64_t{std::bit_cast<int32_t>(kNaN)}})
    CHECK(sum_squares(DType::f32, true, x, bits, {5, 6}) == Words{5, 6});
}

TEST_CASE("any cut gives the same integers") {
  const auto x = random_floats(5000, 2, 3);
  const int64_t largest = max_abs(DType::f32, true, x)[0];
  Words sum = {0, 0};
  for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 1}, {1, 1030}, {1030, 5000}})
    sum = sum_squares(DType::f32, true, {x.begin() + first, x.begin() + last}, largest, sum);
  CHECK(sum == sum_squares(DType::f32, true, x, largest));
}
