// softmax_cross_entropy and its backward against double; totals that do not depend on how rows are cut.
#include "runtime/kernel_test.h"
#include "runtime/kernels.h"

namespace trencadis {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
using Totals = std::vector<int64_t>;

struct Result {
  float loss;
  std::vector<float> lse;
  Totals totals;
};

Result cross_entropy(const std::vector<float>& logits, const std::vector<int32_t>& targets, int64_t V,
                     const Totals& start = {0, 0, 0}) {
  const auto N = static_cast<int64_t>(targets.size());
  const auto out = test::same_bits([&](test::Buffers& b) {
    View loss = b.out(1), lse = b.out(N), totals = b.inout(start);
    b.kernels().softmax_cross_entropy(loss, lse, totals, b.in(logits), b.in(targets), N, V);
  });
  return {out.get(0)[0], out.get(1), out.get<int64_t>(2)};
}

double exact_lse(const float* row, int64_t V) {
  double top = row[0], sum = 0;
  for (int64_t v = 0; v < V; ++v) top = std::max(top, static_cast<double>(row[v]));
  for (int64_t v = 0; v < V; ++v) sum += std::exp(static_cast<double>(row[v]) - top);
  return top + std::log(sum);
}

TEST_CASE("cross entropy: loss, lse and gradient equal double's for ragged shapes") {
  struct Shape {
    int64_t N, V;
  };
  for (const Shape shape :
       {Shape{1, 1}, Shape{1, 2}, Shape{5, 15}, Shape{7, 16}, Shape{33, 65}, Shape{100, 256}, Shape{3, 5003}}) {
    const int64_t N = shape.N, V = shape.V;
    const auto logits = test::random_floats(N * V, 1, 8);
    auto targets = test::random_ints(N, 2, static_cast<int32_t>(V));
    if (N > 2) targets[1] = -1;
    const Result got = cross_entropy(logits, targets, V);

    const float dloss = 1.0f / static_cast<float>(N);
    const auto grad = test::same_bits([&](test::Buffers& b) {
                        View x = b.inout(logits);
                        b.kernels().softmax_cross_entropy_backward(x, b.in(got.lse), b.in(targets),
                                                                   b.in(std::vector<float>{dloss}), N, V);
                      }).get();

    double loss = 0;
    int64_t tokens = 0;
    std::vector<double> lse, want(static_cast<size_t>(N * V), 0.0);
    for (int64_t i = 0; i < N; ++i) {
      const int32_t target = targets[static_cast<size_t>(i)];
      lse.push_back(exact_lse(&logits[static_cast<size_t>(i * V)], V));
      if (target < 0) continue;
      ++tokens;
      loss += lse.back() - static_cast<double>(logits[static_cast<size_t>(i * V + target)]);
      for (int64_t v = 0; v < V; ++v)
        want[static_cast<size_t>(i * V + v)] =
            (std::exp(static_cast<double>(logits[static_cast<size_t>(i * V + v)]) - lse.back()) - (v == target)) *
            static_cast<double>(dloss);
    }
    // lse is below 17: half an ulp is 1e-6, which is also the relative error that it brings to exp(x - lse).
    CHECK(test::max_error(got.lse, lse) < 1.5e-6);
    // Each row errs by less than 1e-6 (its sum of exponentials is f32) and 2^-31 (fixed point).
    CHECK(std::abs(static_cast<double>(got.loss) - loss) < 1e-6 * static_cast<double>(N) + 1e-6 * loss);
    CHECK(test::max_error(grad, want) < 2e-6 * static_cast<double>(dloss));
    CHECK(got.totals[kLossTokens] == tokens);
    CHECK(std::abs(static_cast<double>(got.totals[kLossFixedPoint]) * kLossUnit - loss) <
          1e-6 * static_cast<double>(N));
    CHECK(got.totals[kLossNonFinite] == 0);
  }
}

TEST_CASE("cross entropy: totals add up to those of the whole for any cut") {
  const int64_t N = 90, V = 65;
  const auto logits = test::random_floats(N * V, 3, 4);
  const auto targets = test::random_ints(N, 4, V);
  const Totals whole = cross_entropy(logits, targets, V, {10, 20, 30}).totals;
  for (long cut : {1, 31, 32, 89}) {
    const Totals first =
        cross_entropy({logits.begin() + cut * V, logits.end()}, {targets.begin() + cut, targets.end()}, V, {10, 20, 30})
            .totals;
    CHECK(cross_entropy({logits.begin(), logits.begin() + cut * V}, {targets.begin(), targets.begin() + cut}, V, first)
              .totals == whole);
  }
}

TEST_CASE("cross entropy: a row's lse does not depend on the rows around it") {
  const int64_t V = 33;
  const auto logits = test::random_floats(40 * V, 5, 4);
  const auto lse = cross_entropy(logits, std::vector<int32_t>(40, 0), V).lse;
  const auto alone = cross_entropy({logits.begin() + 7 * V, logits.begin() + 8 * V}, {0}, V).lse;
  CHECK(alone[0] == lse[7]);
}

TEST_CASE("cross entropy: large logits do not overflow") {
  const Result r = cross_entropy({1e4f, -1e4f, 0.0f, -88.0f, -89.0f, -90.0f}, {1, 0}, 3);
  CHECK(r.lse[0] == 1e4f);
  CHECK(std::abs(static_cast<double>(r.loss) - (2e4 + std::log(1 + std::exp(-1.0) + std::exp(-2.0)))) < 2e-3);
}

TEST_CASE("cross entropy: losses that are not finite are counted, not added") {
  const std::vector<float> fine = {1, 2, 3, 4};
  const Totals clean = cross_entropy({1, 2}, {1}, 2).totals;
  for (float bad : {kNaN, kInf}) {
    const Result r = cross_entropy({1, 2, 0, bad}, {1, 0}, 2);
    CHECK(r.totals == Totals{2, clean[kLossFixedPoint], 1});
    CHECK(std::isnan(r.loss));
  }
  // A target of probability 0, and a loss beyond what fixed point holds.
  for (float low : {-kInf, -3e38f}) {
    const Result r = cross_entropy({1, 2, 0, low}, {1, 1}, 2);
    CHECK(r.totals == Totals{2, clean[kLossFixedPoint], 1});
    CHECK(r.loss == kInf);
  }
}

TEST_CASE("cross entropy: rows that are ignored have no loss and no gradient, NaN logits included") {
  const Result r = cross_entropy({kNaN, 1, 2, 3}, {-1, -100}, 2);
  CHECK(r.loss == 0);
  CHECK(r.totals == Totals{0, 0, 0});
  const auto grad = test::same_bits([&](test::Buffers& b) {
                      View x = b.inout(std::vector<float>{kNaN, 1, 2, 3});
                      b.kernels().softmax_cross_entropy_backward(x, b.in(r.lse), b.in(std::vector<int32_t>{-1, -100}),
                                                                 b.in(std::vector<float>{1}), 2, 2);
                    }).get();
  CHECK(grad == std::vector<float>(4, 0.0f));
}

TEST_CASE("cross entropy: a target outside the vocabulary is an error that names it") {
  Context context(make_cpu_backend());
  test::Buffers b(context);
  View loss = b.out(1), lse = b.out(2), totals = b.out<int64_t>(3);
  View logits = b.in(std::vector<float>(20)), targets = b.in(std::vector<int32_t>{3, 10});
  test::expect_error([&] { context.kernels().softmax_cross_entropy(loss, lse, totals, logits, targets, 2, 10); },
                     "target 10 at position 1 is not below the vocabulary's 10");
  test::expect_error([&] { context.kernels().softmax_cross_entropy(loss, lse, totals, logits, targets, 2, 11); },
                     "logits has 20 elements, 22 are needed");
}

}  // namespace
}  // namespace trencadis
