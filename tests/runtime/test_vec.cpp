// vec.h against double precision, over all exponents; the bounds are those that vec.h states.
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/cpu/vec.h"
#include "runtime/kernel_test.h"

namespace trencadis {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// |got - want| in units of the last place of an f32 near want. Infinite when one of them alone is NaN or infinite.
double ulps(float got, double want) {
  const float rounded = static_cast<float>(want);
  if (std::isnan(rounded) || std::isnan(got)) return std::isnan(rounded) == std::isnan(got) ? 0 : kInf;
  if (std::isinf(rounded) || std::isinf(got)) return rounded == got ? 0 : kInf;
  int exponent = 0;
  std::frexp(rounded, &exponent);
  return std::abs(static_cast<double>(got) - want) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

// Every 997th bit pattern: all signs and exponents, NaN and subnormal numbers included.
template <typename F, typename Exact>
double worst_ulps(F f, Exact exact) {
  double worst = 0;
  float in[vec::kLanes], out[vec::kLanes];
  for (uint64_t pattern = 0; pattern < (uint64_t{1} << 32); pattern += 997 * vec::kLanes) {
    for (uint64_t i = 0; i < vec::kLanes; ++i) in[i] = std::bit_cast<float>(static_cast<uint32_t>(pattern + 997 * i));
    vec::store(out, f(vec::load(in)));
    for (int64_t i = 0; i < vec::kLanes; ++i) worst = std::max(worst, ulps(out[i], exact(static_cast<double>(in[i]))));
  }
  return worst;
}

float exp_of(float x) { return vec::exp(vec::F32(x))[5]; }
float tanh_of(float x) { return vec::tanh(vec::F32(x))[5]; }

TEST_CASE("vec: exp is within 1.1 ulp everywhere, subnormal results included") {
  CHECK(worst_ulps([](vec::F32 x) { return vec::exp(x); }, [](double x) { return std::exp(x); }) < 1.1);
  CHECK(exp_of(0) == 1);
  CHECK(exp_of(-kInf) == 0);
  CHECK(exp_of(kInf) == kInf);
  CHECK(exp_of(88.73f) == kInf);
  CHECK(exp_of(-104.1f) == 0);
  CHECK(exp_of(-100.0f) > 0);  // a subnormal number
  CHECK(std::isnan(exp_of(kNaN)));
}

TEST_CASE("vec: transpose moves element (i, j) to (j, i)") {
  vec::F32 rows[vec::kLanes];
  for (int64_t i = 0; i < vec::kLanes; ++i) {
    float row[vec::kLanes];
    for (int64_t j = 0; j < vec::kLanes; ++j) row[j] = static_cast<float>(100 * i + j);
    rows[i] = vec::load(row);
  }
  vec::transpose(rows);
  for (int64_t i = 0; i < vec::kLanes; ++i)
    for (int64_t j = 0; j < vec::kLanes; ++j) CHECK(rows[i][j] == static_cast<float>(100 * j + i));
}

TEST_CASE("vec: tanh is within 3 ulp everywhere, also near 0") {
  CHECK(worst_ulps([](vec::F32 x) { return vec::tanh(x); }, [](double x) { return std::tanh(x); }) < 3);
  CHECK(tanh_of(kInf) == 1);
  CHECK(tanh_of(-kInf) == -1);
  CHECK(tanh_of(1e-30f) == 1e-30f);
  CHECK(std::signbit(tanh_of(-0.0f)));
  CHECK(std::isnan(tanh_of(kNaN)));
}

TEST_CASE("vec: log is within 1.1 ulp everywhere, also near 1 and of subnormal numbers") {
  const auto log_of = [](float x) { return vec::log(vec::F32(x))[5]; };
  CHECK(worst_ulps([](vec::F32 x) { return vec::log(x); }, [](double x) { return std::log(x); }) < 1.1);
  for (int i = -100; i <= 100; ++i) {
    const float x = 1 + static_cast<float>(i) * 0x1p-23f;
    CHECK(ulps(log_of(x), std::log(static_cast<double>(x))) < 1.1);
  }
  CHECK(log_of(0) == -kInf);
  CHECK(log_of(-0.0f) == -kInf);
  CHECK(log_of(kInf) == kInf);
  CHECK(std::isnan(log_of(-1)));
  CHECK(std::isnan(log_of(-kInf)));
  CHECK(std::isnan(log_of(kNaN)));
  CHECK(vec::is_nan(vec::F32(kNaN))[3] == -1);
  CHECK(vec::is_nan(vec::F32(-kInf))[3] == 0);
}

TEST_CASE("vec: fma rounds once, sqrt correctly") {
  const float a = 1 + 0x1p-12f;  // a * a - 1 loses 2^-24 if the product is rounded first
  CHECK(vec::fma(a, a, -1.0f)[3] == 0x1p-11f + 0x1p-24f);
  for (float x : {0.0f, 1e-40f, 2.0f, 3.0f, 1e38f, kInf}) CHECK(vec::sqrt(vec::F32(x))[9] == std::sqrt(x));
}

TEST_CASE("vec: sums and maxima fold the lanes in the documented order") {
  const auto x = test::random_floats(vec::kLanes, 1);
  std::vector<float> s = x, m = x;
  for (size_t apart : {8, 4, 2, 1}) {
    for (size_t i = 0; i < apart; ++i) {
      s[i] = s[i] + s[i + apart];
      m[i] = std::max(m[i], m[i + apart]);
    }
  }
  CHECK(vec::sum(vec::load(x.data())) == s[0]);
  CHECK(vec::max_of(vec::load(x.data())) == m[0]);
  CHECK(vec::max_of(vec::bits(vec::abs(vec::load(x.data())))) >= std::bit_cast<int32_t>(m[0]));
}

TEST_CASE("vec: partial loads and stores touch only their lanes, at every alignment") {
  const auto source = test::random_floats(64, 2);
  for (int64_t start = 0; start < 16; ++start) {
    for (int64_t n = 0; n <= vec::kLanes; ++n) {
      const vec::F32 x = vec::load(source.data() + start, n, 7.0f);
      std::vector<float> target(64, -1.0f);
      vec::store(target.data() + start, x + 1.0f, n);
      for (int64_t i = 0; i < vec::kLanes; ++i) {
        CHECK(x[i] == (i < n ? source[static_cast<size_t>(start + i)] : 7.0f));
        CHECK(target[static_cast<size_t>(start + i)] == (i < n ? x[i] + 1.0f : -1.0f));
      }
    }
  }
}

TEST_CASE("vec: integer lanes") {
  const vec::I32 n = vec::lane_numbers();
  CHECK(n[0] == 0);
  CHECK(n[15] == 15);
  CHECK((n < vec::I32(5))[4] == -1);
  CHECK((n < vec::I32(5))[5] == 0);
  CHECK(((n << 3) >> 2)[7] == 14);
  CHECK(vec::select(n > vec::I32(7), vec::F32(1.0f), vec::F32(2.0f))[8] == 1);
  CHECK(vec::from_bits(vec::bits(vec::F32(-2.5f)))[11] == -2.5f);
}

}  // namespace
}  // namespace trencadis
