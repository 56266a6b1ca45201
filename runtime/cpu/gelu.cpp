// GELU behind a bias, and its backward pass. Hendrycks, Gimpel 2016, the tanh form that GPT-2 has.
// gelu.h has the formula.
#include "runtime/cpu/gelu.h"

#include "runtime/cpu/argument.h"
#include "runtime/cpu/column_sums.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/vec.h"

namespace trencadis {

using vec::F32;

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
        vec::store(out + n * K + k, vec::gelu(u), lanes);
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
        const F32 d = vec::load(dy_in + n * K + k, lanes) * vec::gelu_derivative(u);
        vec::store(dx_out + n * K + k, d, lanes);
        vec::store(partial + k, vec::load(partial + k, lanes) + d, lanes);
      });
  });
  if (dbias_out) sums.add_up(pool_, dbias_out, accumulate);
}

}  // namespace trencadis
