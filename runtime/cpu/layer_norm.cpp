// Layer norm, alone and behind a residual addition, and its backward pass. Ba, Kiros, Hinton 2016.
//
// One row (C) fits the first-level cache: it comes from memory once, and the passes over it after the first are free.
// Lanes beyond C are loaded such that they add nothing: zeros, or the mean where the mean is subtracted.
#include <cmath>

#include "runtime/cpu/argument.h"
#include "runtime/cpu/column_sums.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/vec.h"

namespace trencadis {

using vec::F32;

namespace {

// Chunks of rows, each of at least 16384 elements.
Chunks row_chunks(int64_t N, int64_t C) { return Chunks(N, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, C))); }

struct Moments {
  float mean, rstd;
};

// Of a row x (C). The variance is a sum of squares around the mean: the difference of two large sums would lose it.
Moments moments(const float* x, int64_t C, float eps) {
  F32 sum = 0.0f;
  vec::for_lanes(C, [&](int64_t c, int64_t lanes) { sum += vec::load(x + c, lanes); });
  const float mean = vec::sum(sum) / static_cast<float>(C);
  F32 squares = 0.0f;
  vec::for_lanes(C, [&](int64_t c, int64_t lanes) {
    const F32 d = vec::load(x + c, lanes, mean) - mean;
    squares = vec::fma(d, d, squares);
  });
  return {mean, 1.0f / std::sqrt(vec::sum(squares) / static_cast<float>(C) + eps)};
}

// y (C) = (x - mean) * rstd * gamma + beta
void normalise(float* y, const float* x, Moments m, const float* gamma, const float* beta, int64_t C) {
  vec::for_lanes(C, [&](int64_t c, int64_t lanes) {
    const F32 xh = (vec::load(x + c, lanes) - m.mean) * m.rstd;
    vec::store(y + c, vec::fma(xh, vec::load(gamma + c, lanes), vec::load(beta + c, lanes)), lanes);
  });
}

}  // namespace

void CpuKernels::layer_norm(View y, View mean, View rstd, ConstView x, ConstView gamma, ConstView beta, int64_t N,
                            int64_t C, float eps) {
  float* out = argument<float>("layer_norm", "y", y, N * C);
  float* means = argument<float>("layer_norm", "mean", mean, N);
  float* rstds = argument<float>("layer_norm", "rstd", rstd, N);
  const float* in = argument<float>("layer_norm", "x", x, N * C);
  const float* scale = argument<float>("layer_norm", "gamma", gamma, C);
  const float* shift = argument<float>("layer_norm", "beta", beta, C);
  const Chunks chunks = row_chunks(N, C);
  pool_.run(chunks.count, [&](int64_t chunk) {
    for (int64_t n = chunks.begin(chunk); n < chunks.end(chunk, N); ++n) {
      const Moments m = moments(in + n * C, C, eps);
      normalise(out + n * C, in + n * C, m, scale, shift, C);
      means[n] = m.mean;
      rstds[n] = m.rstd;
    }
  });
}

void CpuKernels::residual_layer_norm(View s, View y, View mean, View rstd, ConstView x, ConstView r, ConstView gamma,
                                     ConstView beta, int64_t N, int64_t C, float eps) {
  float* sum = argument<float>("residual_layer_norm", "s", s, N * C);
  float* out = argument<float>("residual_layer_norm", "y", y, N * C);
  float* means = argument<float>("residual_layer_norm", "mean", mean, N);
  float* rstds = argument<float>("residual_layer_norm", "rstd", rstd, N);
  const float* in = argument<float>("residual_layer_norm", "x", x, N * C);
  const float* residual = argument<float>("residual_layer_norm", "r", r, N * C);
  const float* scale = argument<float>("residual_layer_norm", "gamma", gamma, C);
  const float* shift = argument<float>("residual_layer_norm", "beta", beta, C);
  const Chunks chunks = row_chunks(N, C);
  pool_.run(chunks.count, [&](int64_t chunk) {
    for (int64_t n = chunks.begin(chunk); n < chunks.end(chunk, N); ++n) {
      float* row = sum + n * C;
      vec::for_lanes(C, [&](int64_t c, int64_t lanes) {
        vec::store(row + c, vec::load(in + n * C + c, lanes) + vec::load(residual + n * C + c, lanes), lanes);
      });
      const Moments m = moments(row, C, eps);
      normalise(out + n * C, row, m, scale, shift, C);
      means[n] = m.mean;
      rstds[n] = m.rstd;
    }
  });
}

// xh = (x - mean) * rstd; g = gamma * dy; dx = rstd * (g - mean_C(g) - xh * mean_C(g * xh)) [+ dresidual];
// dgamma = sum over N of dy * xh; dbeta = sum over N of dy. The two sums are formed even where a frozen parameter does
// not want them: they cost little beside the reads that dx needs.
void CpuKernels::layer_norm_backward(View dx, View dgamma, View dbeta, ConstView dy, ConstView x, ConstView mean,
                                     ConstView rstd, ConstView gamma, ConstView dresidual, int64_t N, int64_t C,
                                     bool accumulate) {
  const char* kernel = "layer_norm_backward";
  float* dx_out = argument<float>(kernel, "dx", dx, N * C);
  float* dgamma_out = dgamma ? argument<float>(kernel, "dgamma", dgamma, C) : nullptr;
  float* dbeta_out = dbeta ? argument<float>(kernel, "dbeta", dbeta, C) : nullptr;
  const float* dy_in = argument<float>(kernel, "dy", dy, N * C);
  const float* x_in = argument<float>(kernel, "x", x, N * C);
  const float* means = argument<float>(kernel, "mean", mean, N);
  const float* rstds = argument<float>(kernel, "rstd", rstd, N);
  const float* scale = argument<float>(kernel, "gamma", gamma, C);
  const float* residual = dresidual ? argument<float>(kernel, "dresidual", dresidual, N * C) : nullptr;

  ColumnSums dgamma_sums(N, C), dbeta_sums(N, C);
  pool_.run(dgamma_sums.chunks.count, [&](int64_t chunk) {
    float* dgamma_part = dgamma_sums.partial(chunk);
    float* dbeta_part = dbeta_sums.partial(chunk);
    std::fill_n(dgamma_part, C, 0.0f);
    std::fill_n(dbeta_part, C, 0.0f);
    for (int64_t n = dgamma_sums.chunks.begin(chunk); n < dgamma_sums.chunks.end(chunk, N); ++n) {
      const float *x_row = x_in + n * C, *dy_row = dy_in + n * C;
      const F32 mu = means[n], r = rstds[n];
      F32 sum_g = 0.0f, sum_g_xh = 0.0f;
      vec::for_lanes(C, [&](int64_t c, int64_t lanes) {
        const F32 xh = (vec::load(x_row + c, lanes) - mu) * r;
        const F32 d = vec::load(dy_row + c, lanes);
        const F32 g = vec::load(scale + c, lanes) * d;
        sum_g += g;
        sum_g_xh = vec::fma(g, xh, sum_g_xh);
        vec::store(dgamma_part + c, vec::fma(d, xh, vec::load(dgamma_part + c, lanes)), lanes);
        vec::store(dbeta_part + c, vec::load(dbeta_part + c, lanes) + d, lanes);
      });
      const float mean_g = vec::sum(sum_g) / static_cast<float>(C);
      const float mean_g_xh = vec::sum(sum_g_xh) / static_cast<float>(C);
      vec::for_lanes(C, [&](int64_t c, int64_t lanes) {
        const F32 xh = (vec::load(x_row + c, lanes) - mu) * r;
        const F32 g = vec::load(scale + c, lanes) * vec::load(dy_row + c, lanes);
        F32 d = r * vec::fma(-xh, mean_g_xh, g - mean_g);
        if (residual) d += vec::load(residual + n * C + c, lanes);
        vec::store(dx_out + n * C + c, d, lanes);
      });
    }
  });
  if (dgamma_out) dgamma_sums.add_up(pool_, dgamma_out, accumulate);
  if (dbeta_out) dbeta_sums.add_up(pool_, dbeta_out, accumulate);
}

}  // namespace trencadis
