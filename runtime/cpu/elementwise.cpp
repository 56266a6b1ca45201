// Kernels on one element at a time: zero, copy, cast, fill, normal (add is in general.cpp). All are bound by memory; a chunk is large
// enough that starting it costs nothing beside its bytes.
#include <cmath>
#include <cstring>
#include <numbers>

#include "runtime/cpu/argument.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/walk.h"

namespace trencadis {

namespace {

template <typename To, typename From>
void cast_range(To* y, const From* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<To>(x[i]);
}

}  // namespace

void CpuKernels::zero(View x) {
  char* bytes = static_cast<char*>(x.data);
  for_ranges(pool_, x.bytes(), kGrainBytes,
             [&](int64_t first, int64_t last) { std::memset(bytes + first, 0, static_cast<size_t>(last - first)); });
}

void CpuKernels::copy(View y, ConstView x) {
  CHECK(y.dtype == x.dtype && y.size >= x.size, "copy: {} elements of {} do not fit {} of {}", x.size, name_of(x.dtype),
        y.size, name_of(y.dtype));
  char* to = static_cast<char*>(y.data);
  const char* from = static_cast<const char*>(x.data);
  for_ranges(pool_, x.bytes(), kGrainBytes, [&](int64_t first, int64_t last) {
    std::memcpy(to + first, from + first, static_cast<size_t>(last - first));
  });
}

void CpuKernels::cast(View y, ConstView x) {
  if (x.dtype == y.dtype) return copy(y, x);
  if (x.dtype == DType::f32) {
    const float* from = argument<float>("cast", "x", x, x.size);
    bf16* to = argument<bf16>("cast", "y", y, x.size);
    for_ranges(pool_, x.size, kGrain,
               [&](int64_t first, int64_t last) { cast_range(to + first, from + first, last - first); });
  } else {
    const bf16* from = argument<bf16>("cast", "x", x, x.size);
    float* to = argument<float>("cast", "y", y, x.size);
    for_ranges(pool_, x.size, kGrain,
               [&](int64_t first, int64_t last) { cast_range(to + first, from + first, last - first); });
  }
}

void CpuKernels::fill(View x, float value) {
  float* out = argument<float>("fill", "x", x, x.size);
  for_ranges(pool_, x.size, kGrain, [&](int64_t first, int64_t last) { std::fill(out + first, out + last, value); });
}

// Box and Muller 1958: from u in (0,1] and v in [0,1), r = sqrt(-2 ln u), the numbers r cos(2 pi v) and r sin(2 pi v)
// are independent and normal. Words 0 and 1 of a counter make elements 0 and 1, words 2 and 3 elements 2 and 3. In
// double, so that the tails reach sqrt(-2 ln 2^-32) = 6.66 deviations and are not grainy.
void CpuKernels::normal(View x, float stddev, uint64_t key, int64_t first) {
  CHECK(first >= 0, "normal: first element {} is negative", first);
  float* out = argument<float>("normal", "x", x, x.size);
  constexpr double kUnit = 1.0 / 4294967296.0;
  constexpr int64_t kNormalGrain = 1024;  // about 20 ns an element
  for_ranges(pool_, x.size, kNormalGrain, [&](int64_t begin, int64_t end) {
    const int64_t from = first + begin, to = first + end;  // global elements
    for (int64_t quad = from / 4; quad * 4 < to; ++quad) {
      const auto words = philox({static_cast<uint32_t>(quad), static_cast<uint32_t>(quad >> 32), 0, 0}, key);
      double values[4];
      for (int pair = 0; pair < 4; pair += 2) {
        const double u = (words[pair] + 1.0) * kUnit, v = words[pair + 1] * kUnit;
        const double r = std::sqrt(-2.0 * std::log(u)), angle = 2.0 * std::numbers::pi * v;
        values[pair] = r * std::cos(angle);
        values[pair + 1] = r * std::sin(angle);
      }
      for (int64_t e = std::max(from, quad * 4); e < std::min(to, quad * 4 + 4); ++e)
        out[e - first] = static_cast<float>(stddev * values[e - quad * 4]);
    }
  });
}

}  // namespace trencadis
