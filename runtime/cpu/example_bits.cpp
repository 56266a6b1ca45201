// One sum in several orders: plain loops disagree, the kernels do not. Build and run: ninja example_bits
#include <bit>
#include <cstdio>

#include "runtime/cpu/backend.h"
#include "runtime/tensor.h"

using namespace trencadis;

namespace {

constexpr int64_t N = 100'000;

// The sum of x by bias_backward, a column sum over N rows, on a backend of its own.
float column_sum(const std::vector<float>& x, int threads, int misalign) {
  Context context(make_cpu_backend({.threads = threads, .misalign = misalign}));
  const Tensor sum = Tensor::zeros(context, {1});
  context.kernels().bias_backward(sum, Tensor::from(context, x, {N, 1}), N, /*K=*/1, /*accumulate=*/false);
  return sum.item();
}

// sum x^2 by sum_squares, of the equal parts of x that begin at `begins`, one after another.
double squares(const std::vector<float>& x, const std::vector<int64_t>& begins) {
  Context context(make_cpu_backend());
  int64_t largest = 0, words[2] = {0, 0};
  const ConstView all(x.data(), N);
  context.kernels().max_abs(View(&largest, 1), all);
  for (const int64_t begin : begins)
    context.kernels().sum_squares(View(words, 2), all.slice(begin, N / static_cast<int64_t>(begins.size())),
                                  ConstView(&largest, 1));
  const double m = std::bit_cast<float>(static_cast<uint32_t>(largest));
  return (static_cast<double>(words[0]) + static_cast<double>(words[1]) * kSquareUnit) * kSquareUnit * m * m;
}

}  // namespace

int main() {
  std::vector<float> x(N);  // in [-1, 1)
  for (uint32_t i = 0; i < N; ++i)
    x[i] = static_cast<float>(static_cast<int32_t>(philox({i, 0, 0, 0}, 42)[0])) * 0x1p-31f;

  float up = 0, down = 0, up_squares = 0, down_squares = 0;
  double exact = 0, exact_squares = 0;
  for (size_t i = 0; i < N; ++i) {
    const float last = x[N - 1 - i];
    up += x[i], up_squares += x[i] * x[i];
    down += last, down_squares += last * last;
    const double wide = x[i];
    exact += wide, exact_squares += wide * wide;
  }
  std::printf("sum, in double                      %.9g\n", exact);
  std::printf("a loop upwards                      %.9g\n", static_cast<double>(up));
  std::printf("a loop downwards                    %.9g\n", static_cast<double>(down));
  for (const int threads : {1, 2, 3})
    std::printf("bias_backward, %d thread%s            %.9g\n", threads, threads > 1 ? "s" : " ",
                static_cast<double>(column_sum(x, threads, 0)));
  std::printf("bias_backward, moved by 20 bytes    %.9g\n\n", static_cast<double>(column_sum(x, 3, 20)));

  std::printf("squares, in double                  %.9g\n", exact_squares);
  std::printf("squares, a loop upwards             %.9g\n", static_cast<double>(up_squares));
  std::printf("squares, a loop downwards           %.9g\n", static_cast<double>(down_squares));
  std::printf("sum_squares                         %.17g\n", squares(x, {0}));
  std::printf("sum_squares, four shards, shuffled  %.17g\n", squares(x, {N / 2, 0, 3 * N / 4, N / 4}));
}
