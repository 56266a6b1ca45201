// GELU and its derivative, sixteen at a time: behind a bias (gelu.cpp) and as a general operation (general.cpp).
//
// With z = sqrt(2/pi) (u + 0.044715 u^3), (1 + tanh z) / 2 is the logistic function s = 1 / (1 + exp(-2z)). So
// gelu(u) = u s, and gelu'(u) = s + u s (1 - s) 2 z'. That saves half of the work of tanh, and keeps the digits that
// 1 + tanh z loses for negative u.
#pragma once

#include "runtime/cpu/vec.h"

namespace trencadis::vec {

inline constexpr float kMinusTwoC = -1.5957691216057308f;  // -2 sqrt(2/pi)
inline constexpr float kCubic = 0.044715f;

// exp(-2z): inf for very negative u, where s then is 0.
[[gnu::always_inline]] inline F32 exp_minus_2z(F32 u) { return exp(u * fma(u * u, kMinusTwoC * kCubic, kMinusTwoC)); }

[[gnu::always_inline]] inline F32 gelu(F32 u) { return u / (exp_minus_2z(u) + 1.0f); }

[[gnu::always_inline]] inline F32 gelu_derivative(F32 u) {
  // Beyond 10, s is 0 or 1 to f32 and the second term vanishes; written out it would become 0 * inf for large u.
  u = min(F32(10.0f), max(F32(-10.0f), u));  // in this order NaN stays NaN
  const F32 e = exp_minus_2z(u);             // finite, because u is at least -10
  const F32 s = F32(1.0f) / (e + 1.0f);
  const F32 two_z_prime = fma(u * u, -3.0f * kMinusTwoC * kCubic, -kMinusTwoC);
  return fma(u * s * (e * s), two_z_prime, s);  // e s = 1 - s, without its cancellation
}

}  // namespace trencadis::vec
