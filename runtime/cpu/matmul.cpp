// Matrix products of layers, and the gradient of a bias.
#include "runtime/cpu/argument.h"
#include "runtime/cpu/column_sums.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/product.h"

namespace trencadis {

void CpuKernels::matmul(View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K, bool trans_a, bool trans_b,
                        bool accumulate) {
  float* out = argument<float>("matmul", "c", c, M * N);
  const float* left = argument<float>("matmul", "a", a, M * K);
  const float* right = argument<float>("matmul", "b", b, K * N);
  product(pool_, workspace_, out, {left, trans_a ? M : K, trans_a}, {right, trans_b ? K : N, trans_b}, M, N, K,
          {.result = accumulate});
}

void CpuKernels::linear(View y, ConstView x, ConstView w, ConstView bias, int64_t N, int64_t C, int64_t K) {
  float* out = argument<float>("linear", "y", y, N * K);
  const float* in = argument<float>("linear", "x", x, N * C);
  const float* weight = argument<float>("linear", "w", w, K * C);
  const float* offset = bias ? argument<float>("linear", "bias", bias, K) : nullptr;
  product(pool_, workspace_, out, {in, C, false}, {weight, C, true}, N, K, C, {.bias = offset});
}

void CpuKernels::bias_backward(View db, ConstView dy, int64_t N, int64_t K, bool accumulate) {
  if (!db) return;  // frozen
  float* out = argument<float>("bias_backward", "db", db, K);
  const float* in = argument<float>("bias_backward", "dy", dy, N * K);
  ColumnSums sums(N, K);
  pool_.run(sums.chunks.count, [&](int64_t chunk) {
    float* partial = sums.partial(chunk);
    std::fill_n(partial, K, 0.0f);
    // Four rows at a time, one after another into the sum: the partial sums are read and written a quarter as often.
    const int64_t last = sums.chunks.end(chunk, N);
    for (int64_t n = sums.chunks.begin(chunk); n < last; n += 4) {
      const int64_t rows = std::min<int64_t>(4, last - n);
      vec::for_lanes(K, [&](int64_t k, int64_t lanes) {
        vec::F32 sum = vec::load(partial + k, lanes);
        for (int64_t r = 0; r < rows; ++r) sum += vec::load(in + (n + r) * K + k, lanes);
        vec::store(partial + k, sum, lanes);
      });
    }
  });
  sums.add_up(pool_, out, accumulate);
}

}  // namespace trencadis
