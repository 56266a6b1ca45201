// softmax_cross_entropy and its backward pass on the device against the CPU's.
#include "cuda_kernel_test.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
using Totals = std::vector<int64_t>;

struct Sizes {
  int64_t N, V;
};
// Rows within one group, over two, more than a block's threads have groups; V odd, so that rows start anywhere.
const std::vector<Sizes> kSizes = {{1, 1}, {1, 5}, {5, 15}, {7, 16}, {3, 65}, {33, 7}, {2, 1024}, {2, 2600}, {3, 5003}};

Result forward(DType type, bool device, const std::vector<float>& logits, const std::vector<int32_t>& targets,
               int64_t V, const Totals& start = {0, 0, 0}) {
  const auto N = static_cast<int64_t>(targets.size());
  const auto call = [&](auto& b) {
    View loss = b.out(1), lse = b.out(N), totals = b.inout(start);
    b.kernels().softmax_cross_entropy(loss, lse, totals, b.values_in(logits), b.in(targets), N, V);
  };
  return device ? on_device(type, call) : on_cpu(type, call);
}

}  // namespace

TEST_CASE("cross entropy: loss, lse, totals and gradient") {
  for (DType type : kFloatTypes)
    for (const Sizes& s : kSizes) {
      CAPTURE(s.N);
      CAPTURE(s.V);
      const auto logits = random_floats(s.N * s.V, 1, 8);
      auto targets = random_ints(s.N, 2, static_cast<int32_t>(s.V));
      if (s.N > 2) targets[1] = -1;
      const Result got = forward(type, true, logits, targets, s.V), want = forward(type, false, logits, targets, s.V);
      // lse is below 17; half an ulp of it is 1e-6. The sum of exponentials is f32 on the device.
      CHECK(error_ratio(got, want, 1, 2e-7, 17) <= 1);
      CHECK(error_ratio(got, want, 0, 2e-7, 17 * static_cast<double>(s.N)) <= 1);
      const Totals totals = got.get<int64_t>(2), want_totals = want.get<int64_t>(2);
      CHECK(totals[kLossTokens] == want_totals[kLossTokens]);
      CHECK(totals[kLossNonFinite] == 0);
      CHECK(std::abs(static_cast<double>(totals[kLossFixedPoint] - want_totals[kLossFixedPoint])) * kLossUnit <=
            1e-6 * static_cast<double>(s.N));

      const auto lse = want.values(1);
      const std::vector<float> dloss = {1.0f / static_cast<float>(s.N)};
      const auto backward = [&](auto& b) {
        View x = b.values_inout(logits);
        b.kernels().softmax_cross_entropy_backward(x, b.in(lse), b.in(targets), b.in(dloss), s.N, s.V);
      };
      CHECK(error_ratio(on_device(type, backward), on_cpu(type, backward), 0, 1e-6, static_cast<double>(dloss[0])) <=
            1);
    }
}

TEST_CASE("the totals are sums of integers: any cut of the rows gives the same, and they add to what is there") {
  const int64_t N = 9, V = 37;
  const auto logits = random_floats(N * V, 3, 8);
  const auto targets = random_ints(N, 4, static_cast<int32_t>(V));
  const Totals whole = forward(DType::f32, true, logits, targets, V, {100, 200, 300}).get<int64_t>(2);
  Totals sum = {100, 200, 300};
  for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 4}, {4, 5}, {5, 9}}) {
    const std::vector<float> rows(logits.begin() + first * V, logits.begin() + last * V);
    const std::vector<int32_t> wanted(targets.begin() + first, targets.begin() + last);
    sum = forward(DType::f32, true, rows, wanted, V, sum).get<int64_t>(2);
  }
  // A row's own sum depends on where groups of 4 begin in it, so its loss on the row's number: within rounding.
  CHECK(sum[kLossTokens] == whole[kLossTokens]);
  CHECK(sum[kLossNonFinite] == whole[kLossNonFinite]);
  CHECK(std::abs(static_cast<double>(sum[kLossFixedPoint] - whole[kLossFixedPoint])) * kLossUnit <= 1e-6 * 9);
}

TEST_CASE("values that are not finite are counted, as on the CPU") {
  struct Case {
    std::vector<float> row;
    int32_t target;
  };
  const std::vector<Case> cases = {{{-kInf, -kInf, -kInf, -kInf, -kInf}, 0},
                                   {{0, kNaN, 0, 0, 0}, 0},
                                   {{0, kInf, 0, 0, 0}, 0},
                                   {{0, -kInf, 0, 0, 0}, 1},
                                   {{0, -kInf, 0, 0, 0}, 0},
                                   {{3e6f, 0, 0, 0, 0}, 1},
                                   {{kNaN, -kInf, -kInf, -kInf, -kInf}, -1},
                                   {{kNaN, -kInf, -kInf, -kInf, -kInf}, 1}};
  for (size_t k = 0; k < cases.size(); ++k) {
    CAPTURE(k);
    const std::vector<int32_t> targets = {cases[k].target};
    const Result got = forward(DType::f32, true, cases[k].row, targets, 5);
    const Result want = forward(DType::f32, false, cases[k].row, targets, 5);
    const Totals totals = got.get<int64_t>(2), want_totals = want.get<int64_t>(2);
    CHECK(totals[kLossTokens] == want_totals[kLossTokens]);
    CHECK(totals[kLossNonFinite] == want_totals[kLossNonFinite]);
    CHECK(std::abs(totals[kLossFixedPoint] - want_totals[kLossFixedPoint]) < 1000);
    CHECK(close(got.values(0)[0], want.values(0)[0], 1e-6));
  }
}

TEST_CASE("a target outside the vocabulary is a loss and a gradient that are not finite") {
  const std::vector<float> logits = {0, 0, 0, 0}, dloss = {1};
  const std::vector<int32_t> targets = {2, 0};
  const Result got = forward(DType::f32, true, logits, targets, 2);
  CHECK(std::isnan(got.values(0)[0]));
  CHECK(got.get<int64_t>(2)[kLossNonFinite] == 1);
  CHECK(got.get<int64_t>(2)[kLossTokens] == 2);
  const auto lse = got.values(1);
  const auto gradient = on_device(DType::f32, [&](auto& b) {
                          View x = b.values_inout(logits);
                          b.kernels().softmax_cross_entropy_backward(x, b.in(lse), b.in(targets), b.in(dloss), 2, 2);
                        }).values();
  CHECK(std::isnan(gradient[0]));
  CHECK(gradient[2] == doctest::Approx(-0.5));
}

TEST_CASE("no rows: nothing is added, the loss is 0") {
  const Result got = forward(DType::f32, true, {}, {}, 3, {7, 8, 9});
  CHECK(got.values(0)[0] == 0);
  CHECK(got.get<int64_t>(2) == Totals{7, 8, 9});
}
