// GELU and its derivative: behind a bias (gelu.cu) and as a general operation (general.cu). Why the formulas are written
// so: runtime/cpu/gelu.h.
#pragma once

#include <cuda_runtime.h>

namespace trencadis {

inline constexpr float kMinusTwoC = -1.5957691216057308f;  // -2 sqrt(2/pi)
inline constexpr float kCubic = 0.044715f;

// exp(-2z): inf for very negative u.
__device__ inline float exp_minus_2z(float u) { return expf(u * fmaf(u * u, kMinusTwoC * kCubic, kMinusTwoC)); }

__device__ inline float gelu(float u) { return u / (exp_minus_2z(u) + 1.0f); }

__device__ inline float gelu_derivative(float u) {
  // Beyond 10, s is 0 or 1 to f32 and the second term vanishes. Comparisons with NaN are false, so that it stays NaN.
  u = u > 10.0f ? 10.0f : u < -10.0f ? -10.0f : u;
  const float e = exp_minus_2z(u);
  const float s = 1.0f / (e + 1.0f);
  const float two_z_prime = fmaf(u * u, -3.0f * kMinusTwoC * kCubic, -kMinusTwoC);
  return fmaf(u * s * (e * s), two_z_prime, s);
}

}  // namespace trencadis
