// GELU behind a bias, and its backward pass. Hendrycks, Gimpel 2016, the tanh form that GPT-2 has.
//
// With z = sqrt(2/pi) (u + 0.044715 u^3), (1 + tanh z) / 2 is the logistic function s = 1 / (1 + exp(-2z)). So
// gelu(u) = u s, and gelu'(u) = s + u s (1 - s) 2 z'. That saves half of the work of tanh, and keeps the digits that
// 1 + tanh z loses for negative u.
#include "runtime/cpu/argument.h"
#include "runtime/cpu/column_sums.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/vec.h"

namespace trencadis {

using vec::F32;

namespace {

constexpr float kMinusTwoC = -1.5957691216057308f;  // -2 sqrt(2/pi)
constexpr float kCubic = 0.044715f;

// exp(-2z): inf for very negative u, where s then is 0.
[[gnu::always_inline]] inline F32 exp_minus_2z(F32 u) {
  return vec::exp(u * vec::fma(u * u, kMinusTwoC * kCubic, kMinusTwoC));
}

[[gnu::always_inline]] inline F32 gelu(F32 u) { return u / (exp_minus_2z(u) + 1.0f); }

[[gnu::always_inline]] inline F32 gelu_derivative(F32 u) {
  // Beyond 10, s is 0 or 1 to f32 and the second term vanishes; written out it would become 0 * inf for large u.
  u = vec::min(F32(10.0f), vec::max(F32(-10.0f), u));  // in this order NaN stays NaN
  const F32 e = exp_minus_2z(u);                       // finite, because u is at least -10
  const F32 s = F32(1.0f) / (e + 1.0f);
  const F32 two_z_prime = vec::fma(u * u, -3.0f * kMinusTwoC * kCubic, -kMinusTwoC);
  return vec::fma(u * s * (e * s), two_z_prime, s);  // e s = 1 - s, without its cancellation
}

}  // namespace

void CpuKernels::bias_gelu(View y, ConstView x, ConstView bias, int64_t N, int64_t K) {
  float* out = argument<float>("bias_gelu", "y", y, N * K);
  const float* in = argument<float>("bias_gelu", "x", x, N * K);
  const float* offset = argument<float>("bias_gelu", "bias", bias, K);
  const Chunks chunks(N, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, K)));
  pool_.run(chunks.count, [&](int64_t chunk) {
    for (int64_t n = chunks.begin(chunk); n < chunks.end(chunk, N); ++n)
      vec::for_lanes(K, [&](int64_t k, int64_t lanes) {
        vec::ask_ahead(in + n * K + k);
        vec::ask_ahead_to_write(out + n * K + k);
        const F32 u = vec::load(in + n * K + k, lanes) + vec::load(offset + k, lanes);
        vec::store(out + n * K + k, gelu(u), lanes);
      });
  });
}

void CpuKernels::bias_gelu_backward(View dx, View dbias, ConstView dy, ConstView x, ConstView bias, int64_t N,
                                    int64_t K, bool accumulate) {
  float* dx_out = argument<float>("bias_gelu_backward", "dx", dx, N * K);
  float* dbias_out = dbias ? argument<float>("bias_gelu_backward", "dbias", dbias, K) : nullptr;
  const float* dy_in = argument<float>("bias_gelu_backward", "dy", dy, N * K);
  const float* x_in = argument<float>("bias_gelu_backward", "x", x, N * K);
  const float* offset = argument<float>("bias_gelu_backward", "bias", bias, K);
  ColumnSums sums(N, K);
  pool_.run(sums.chunks.count, [&](int64_t chunk) {
    float* partial = sums.partial(chunk);
    std::fill_n(partial, K, 0.0f);
    for (int64_t n = sums.chunks.begin(chunk); n < sums.chunks.end(chunk, N); ++n)
      vec::for_lanes(K, [&](int64_t k, int64_t lanes) {
        vec::ask_ahead(x_in + n * K + k);
        vec::ask_ahead(dy_in + n * K + k);
        vec::ask_ahead_to_write(dx_out + n * K + k);
        const F32 u = vec::load(x_in + n * K + k, lanes) + vec::load(offset + k, lanes);
        const F32 d = vec::load(dy_in + n * K + k, lanes) * gelu_derivative(u);
        vec::store(dx_out + n * K + k, d, lanes);
        vec::store(partial + k, vec::load(partial + k, lanes) + d, lanes);
      });
  });
  if (dbias_out) sums.add_up(pool_, dbias_out, accumulate);
}

}  // namespace trencadis
