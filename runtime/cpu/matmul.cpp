// Matrix products of layers, and the gradient of a bias.
#include "runtime/cpu/argument.h"
#include "runtime/cpu/column_sums.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/product.h"
#include "runtime/cpu/walk.h"

namespace trencadis {

void CpuKernels::matmul(View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K, bool trans_a, bool trans_b,
                        bool accumulate) {
  float* out = argument<float>("matmul", "c", c, M * N);
  const float* left = argument<float>("matmul", "a", a, M * K);
  const float* right = argument<float>("matmul", "b", b, K * N);
  product(pool_, workspace_, out, {left, trans_a ? M : K, trans_a}, {right, trans_b ? K : N, trans_b}, M, N, K,
          {.result = accumulate});
}

// Small products are dealt out to the threads whole; of large ones each is cut up. An element's bits are the same both
// ways (product.h).
void CpuKernels::batched_matmul(View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K, bool trans_a,
                                bool trans_b, const Loop& batch) {
  constexpr int64_t kLarge = 1 << 20;  // multiplications
  const int64_t count = batch.count();
  float* out = argument<float>("batched_matmul", "c", c, count * M * N);
  const float* left = argument<float>("batched_matmul", "a", a, batch.span(0) * M * K);
  const float* right = argument<float>("batched_matmul", "b", b, batch.span(1) * K * N);
  if (M == 0 || N == 0) return;
  const auto run = [&](int64_t begin, int64_t end, const auto& multiply) {
    for_runs(batch, begin, end, [&](int64_t first, int64_t length, const Run<2>& r) {
      for (int64_t i = 0; i < length; ++i)
        multiply(out + (first + i) * M * N, Operand{left + (r.at[0] + i * r.step[0]) * M * K, trans_a ? M : K, trans_a},
                 Operand{right + (r.at[1] + i * r.step[1]) * K * N, trans_b ? K : N, trans_b});
    });
  };
  const int64_t work = std::max<int64_t>(1, M * N * K);
  if (work >= kLarge)
    return run(0, count,
               [&](float* to, const Operand& l, const Operand& r) { product(pool_, workspace_, to, l, r, M, N, K); });
  for_ranges(pool_, count, (kLarge + work - 1) / work / 4, [&](int64_t begin, int64_t end) {
    run(begin, end, [&](float* to, const Operand& l, const Operand& r) { product(to, N, l, r, M, N, K); });
  });
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
