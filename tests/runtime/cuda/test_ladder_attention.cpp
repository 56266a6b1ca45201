// Every rung of attention's ladder against the CPU's attention().
#include "attention_problem.h"
#include "runtime/cuda/ladder/attention.h"

namespace trencadis::test {
namespace {

// bound: of the error, in units of the largest output.
void compare(Attention& rung, const AttentionProblem& p, DType type, double bound) {
  CAPTURE(p.s.T);
  CAPTURE(p.s.D);
  const bool is_bf16 = type == DType::bf16;
  CAPTURE(is_bf16);
  const auto call = forward_call(p, [&](auto& arrays, View o, View lse, View q, View k, View v) {
    if constexpr (requires { arrays.stream(); })
      rung(arrays.stream(), arrays.scratch(), o, lse, q, k, v, p.s);
    else
      arrays.kernels().attention(o, lse, q, k, v, p.s);
  });
  const Result got = on_device(type, call), want = on_cpu(type, call);
  CHECK(error_ratio(got, want, 0, bound) <= 1);
  CHECK(error_ratio(got, want, 1, 1e-5) <= 1);
}

const std::vector<AttentionProblem> kProblems = {
    AttentionProblem(1, 1, 1, 1, 8),          // one query
    AttentionProblem(2, 17, 4, 2, 8),         // part of a tile; shared key/value heads
    AttentionProblem(1, 65, 1, 1, 64, 0.3f),  // one row into the next tile; dropout
    AttentionProblem(1, 33, 2, 1, 40),        // heads between two bounds
    AttentionProblem(1, 35, 1, 1, 128),       // the largest heads
    AttentionProblem(1, 34, 1, 1, 5, 0.1f),   // rows that are not aligned
};

void compare_all(Attention& rung) {
  for (const AttentionProblem& p : kProblems)
    for (DType type : kFloatTypes) compare(rung, p, type, 1e-5);
}

TEST_CASE("ladder of attention: naive") { compare_all(attention_naive); }
TEST_CASE("ladder of attention: tiled") { compare_all(attention_tiled); }
TEST_CASE("ladder of attention: fast") { compare_all(attention_fast); }

TEST_CASE("ladder of attention: tensor core") {
  // Probabilities are rounded to bf16: by 2^-9 of each, so of o by 2^-9 of the largest value (below 2, times the
  // factor of those that dropout keeps). The first query sees one value alone, so the largest output is near it.
  for (const AttentionProblem& p : kProblems)
    compare(attention_tensor_core, p, DType::bf16, 1.0 / 256 / (1 - static_cast<double>(p.s.dropout.probability)));
}

TEST_CASE("ladder of attention: the tensor cores' rung refuses f32") {
  const AttentionProblem& p = kProblems.front();
  DeviceArrays b(DType::f32, 0, false);
  const View x = b.out(static_cast<int64_t>(p.qkv.size())), lse = b.out(p.rows());
  expect_error([&] { attention_tensor_core(b.stream(), b.scratch(), x, lse, x, x, x, p.s); }, "must be bf16");
}

}  // namespace
}  // namespace trencadis::test
