// attention() and attention_backward() on the device against the CPU's: ragged tiles, head sizes below and at each
// bound, shared key/value heads, fused buffers, dropout. The CPU's are tested against plain loops in double.
#include "attention_problem.h"

namespace trencadis::test {
namespace {

void compare(const AttentionProblem& p) {
  CAPTURE(p.s.T);
  CAPTURE(p.s.D);
  CAPTURE(p.s.dropout.probability);
  const auto forward = forward_call(p, [&](auto& arrays, View o, View lse, View q, View k, View v) {
    arrays.kernels().attention(o, lse, q, k, v, p.s);
  });
  for (DType type : kFloatTypes) {
    const bool is_bf16 = type == DType::bf16;
    CAPTURE(is_bf16);
    const Result got = on_device(type, forward), want = on_cpu(type, forward);
    // Scores are sums of D products of at most 4, times 1/sqrt(D): errors of a few 1e-6 at D = 128, which exp turns
    // into relative ones of the probabilities.
    CHECK(error_ratio(got, want, 0, 1e-5) <= 1);
    CHECK(error_ratio(got, want, 1, 1e-5) <= 1);

    // Both backward passes get the same o and lse: the CPU's, o in the type under test.
    const auto backward = [&](auto& arrays) {
      const View d = arrays.values_out(static_cast<int64_t>(p.qkv.size())), qkv = arrays.values_in(p.qkv);
      arrays.kernels().attention_backward(d, rest(d, p.k_at), rest(d, p.v_at), arrays.values_in(p.d_o),
                                          arrays.values_in(want.values(0)), arrays.in(want.get<float>(1)), qkv,
                                          rest(qkv, p.k_at), rest(qkv, p.v_at), p.s);
    };
    CHECK(error_ratio(on_device(type, backward), on_cpu(type, backward), 0, 2e-5) <= 1);
  }
}

TEST_CASE("attention on the device: ragged sequences and heads below, at and between the bounds") {
  compare(AttentionProblem(1, 1, 1, 1, 8));     // one query, one key
  compare(AttentionProblem(2, 17, 2, 2, 8));    // part of one tile
  compare(AttentionProblem(1, 65, 1, 1, 32));   // one row into the second tile of queries; a bound exactly
  compare(AttentionProblem(1, 33, 2, 2, 40));   // one row into the second tile of keys
  compare(AttentionProblem(1, 64, 1, 1, 64));   // full tiles
  compare(AttentionProblem(1, 65, 1, 1, 128));  // the largest head; other tiles in backward
  compare(AttentionProblem(1, 34, 1, 1, 5));    // rows that never start at a multiple of 16 bytes
}

TEST_CASE("attention on the device: query heads share key/value heads") {
  compare(AttentionProblem(2, 37, 4, 2, 8));
  compare(AttentionProblem(1, 17, 6, 1, 20));
}

TEST_CASE("attention on the device: dropout drops what it drops on the CPU") {
  compare(AttentionProblem(2, 33, 4, 2, 8, 0.4f));
  compare(AttentionProblem(1, 66, 1, 1, 12, 0.2f));
}

TEST_CASE("attention on the device: large scores neither overflow nor lose the largest") {
  AttentionProblem p(1, 40, 1, 1, 16);
  p.qkv = random_floats(static_cast<int64_t>(p.qkv.size()), 3, 40);
  const auto call = forward_call(p, [&](auto& arrays, View o, View lse, View q, View k, View v) {
    arrays.kernels().attention(o, lse, q, k, v, p.s);
  });
  const Result got = on_device(DType::f32, call), want = on_cpu(DType::f32, call);
  CHECK(error_ratio(got, want, 1, 1e-6) <= 1);
  CHECK(error_ratio(got, want, 0, 2e-3) <= 1);  // scores near 2000 err by 2e-4
}

TEST_CASE("attention on the device: a later token changes nothing before it") {
  AttentionProblem p(1, 50, 1, 1, 8);
  const auto run = [&] {
    return on_device(DType::f32, forward_call(p, [&](auto& arrays, View o, View lse, View q, View k,
                                                     View v) { arrays.kernels().attention(o, lse, q, k, v, p.s); }))
        .values(0);
  };
  const std::vector<float> first = run();
  std::fill(p.qkv.end() - p.row, p.qkv.end(), 9.0f);
  const std::vector<float> second = run();
  const long before = 49 * 8;
  CHECK(std::equal(first.begin(), first.begin() + before, second.begin()));
  CHECK(first != second);
}

TEST_CASE("attention on the device: an empty batch is no work") {
  AttentionShape s = AttentionProblem(1, 5, 1, 1, 8).s;
  s.B = 0;
  DeviceArrays b(DType::f32, 0, false);
  const View x = b.in(std::vector<float>(1));
  b.kernels().attention(x, x, x, x, x, s);
  b.kernels().attention_backward(x, x, x, x, x, x, x, x, x, s);
  b.finish();
}

TEST_CASE("attention on the device: refuses heads that are too large or do not divide, short views, other types") {
  DeviceArrays b(DType::f32, 0, false);
  const View x = b.out(2 * 4 * 6), lse = b.out(8);
  const AttentionShape s{.B = 1,
                         .T = 4,
                         .H = 2,
                         .H_kv = 2,
                         .D = 3,
                         .q_stride = 6,
                         .k_stride = 6,
                         .v_stride = 6,
                         .o_stride = 6,
                         .dropout = {}};
  const auto expect = [&](auto change, const char* word) {
    AttentionShape bad = s;
    change(bad);
    expect_error([&] { b.kernels().attention(x, lse, x, x, x, bad); }, word);
    expect_error([&] { b.kernels().attention_backward(x, x, x, x, x, lse, x, x, x, bad); }, word);
  };
  expect([](AttentionShape& a) { a.D = 129, a.q_stride = a.k_stride = a.v_stride = a.o_stride = 258; },
         "heads of 129 are larger than 128");
  expect([](AttentionShape& a) { a.H = 3, a.q_stride = a.o_stride = 9; }, "cannot share");
  expect([](AttentionShape& a) { a.k_stride = 5; }, "shorter than");
  expect([](AttentionShape& a) { a.scale = 0; }, "scale 0");
  expect([](AttentionShape& a) { a.T = 5; }, "lse has 8 elements, 10 are needed");
  expect([](AttentionShape& a) { a.dropout.probability = 1; }, "dropout probability 1");
  expect_error([&] { b.kernels().attention(x, lse, x, b.in(std::vector<bf16>(48)), x, s); }, "k is bf16, must be f32");
}

}  // namespace
}  // namespace trencadis::test
