// attention and its backward against plain loops in double: ragged T and D, shared key/value heads,
// fused buffers, dropout.
#include "runtime/fused_attention.h"

namespace trencadis {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

using Problem = test::FusedAttention;

struct Result {
  Floats o, lse, dqkv;
};

Result run(const Problem& p) {
  const AttentionShape& s = p.s;
  const auto forward = test::same_bits([&](test::Buffers& b) {
    View o = b.out(s.B * s.T * s.H * s.D), lse = b.out(s.B * s.H * s.T), qkv = b.in(p.qkv);
    b.kernels().attention(o, lse, qkv, test::rest(qkv, p.k_at), test::rest(qkv, p.v_at), s);
  });
  const auto backward = test::same_bits([&](test::Buffers& b) {
    View d = b.out(static_cast<int64_t>(p.qkv.size())), qkv = b.in(p.qkv);
    b.kernels().attention_backward(d, test::rest(d, p.k_at), test::rest(d, p.v_at), b.in(p.d_o), b.in(forward.get(0)),
                                   b.in(forward.get(1)), qkv, test::rest(qkv, p.k_at), test::rest(qkv, p.v_at), s);
  });
  return {forward.get(0), forward.get(1), backward.get()};
}

struct Exact {
  Doubles o, lse, dqkv;
};

double keep_factor(const AttentionShape& s, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (s.dropout.probability == 0) return 1;
  const auto element = static_cast<uint64_t>((h * s.T + i) * s.T + j);
  const auto words = philox({static_cast<uint32_t>(element / 4), static_cast<uint32_t>(element / 4 >> 32),
                             static_cast<uint32_t>(s.dropout.first_sample + b), 0},
                            s.dropout.key());
  return words[element % 4] < s.dropout.threshold() ? 0 : static_cast<double>(s.dropout.scale());
}

// The formulas of runtime/kernels.h, with all probabilities of one row at hand.
Exact exact(const Problem& p) {
  const AttentionShape& s = p.s;
  const auto group = s.H / s.H_kv;
  Exact r{Doubles(static_cast<size_t>(s.B * s.T * s.H * s.D), 0.0), Doubles(static_cast<size_t>(s.B * s.H * s.T)),
          Doubles(p.qkv.size(), 0.0)};
  for (int64_t b = 0; b < s.B; ++b) {
    for (int64_t h = 0; h < s.H; ++h) {
      const int64_t q_h = h * s.D, k_h = p.k_at + h / group * s.D, v_h = p.v_at + h / group * s.D;
      for (int64_t i = 0; i < s.T; ++i) {
        Doubles prob(static_cast<size_t>(i + 1)), dp(static_cast<size_t>(i + 1));
        double top = -1e300, sum = 0;
        for (int64_t j = 0; j <= i; ++j) {
          double score = 0;
          for (int64_t d = 0; d < s.D; ++d) score += p.at(b, i, q_h + d) * p.at(b, j, k_h + d);
          prob[static_cast<size_t>(j)] = score * static_cast<double>(s.scale);
          top = std::max(top, prob[static_cast<size_t>(j)]);
        }
        for (double& x : prob) sum += x = std::exp(x - top);
        for (double& x : prob) x /= sum;
        r.lse[static_cast<size_t>((b * s.H + h) * s.T + i)] = top + std::log(sum);

        const auto o_at = static_cast<size_t>(((b * s.T + i) * s.H + h) * s.D);
        double delta = 0;
        for (int64_t j = 0; j <= i; ++j) {
          const double keep = keep_factor(s, b, h, i, j), dropped = prob[static_cast<size_t>(j)] * keep;
          double dot = 0;
          for (int64_t d = 0; d < s.D; ++d) {
            const double dout = static_cast<double>(p.d_o[o_at + static_cast<size_t>(d)]);
            r.o[o_at + static_cast<size_t>(d)] += dropped * p.at(b, j, v_h + d);
            r.dqkv[static_cast<size_t>((b * s.T + j) * p.row + v_h + d)] += dropped * dout;
            dot += dout * p.at(b, j, v_h + d);
          }
          dp[static_cast<size_t>(j)] = dot * keep;
          delta += prob[static_cast<size_t>(j)] * dot * keep;
        }
        for (int64_t j = 0; j <= i; ++j) {
          const double ds =
              prob[static_cast<size_t>(j)] * (dp[static_cast<size_t>(j)] - delta) * static_cast<double>(s.scale);
          for (int64_t d = 0; d < s.D; ++d) {
            r.dqkv[static_cast<size_t>((b * s.T + i) * p.row + q_h + d)] += ds * p.at(b, j, k_h + d);
            r.dqkv[static_cast<size_t>((b * s.T + j) * p.row + k_h + d)] += ds * p.at(b, i, q_h + d);
          }
        }
      }
    }
  }
  return r;
}

void compare(const Problem& p) {
  CAPTURE(p.s.T);
  CAPTURE(p.s.D);
  const Result got = run(p);
  const Exact want = exact(p);
  // Scores are sums of D products below 1 each, times 1/sqrt(D): errors of a few 1e-7, which exp turns into relative
  // ones; o averages values below 1 (times 1/(1-p)). Gradients sum up to T such terms of either sign.
  CHECK(test::max_error(got.o, want.o) < 2e-6);
  CHECK(test::max_error(got.lse, want.lse) < 2e-6);
  CHECK(test::relative_error(got.dqkv, want.dqkv) < 3e-6);
}

TEST_CASE("attention: equals plain loops for ragged shapes") {
  // B, T, H, H_kv, D: sizes of 1, tiles not full, T over two and three key tiles.
  compare(Problem(1, 1, 1, 1, 1));
  compare(Problem(2, 1, 3, 3, 5));
  compare(Problem(1, 2, 1, 1, 16));
  compare(Problem(2, 7, 2, 2, 3));
  compare(Problem(2, 63, 2, 2, 20));
  compare(Problem(1, 64, 2, 2, 32));
  compare(Problem(1, 65, 1, 1, 33));
  compare(Problem(1, 200, 2, 2, 8));
  compare(Problem(1, 257, 1, 1, 12));
  compare(Problem(1, 530, 1, 1, 4));
}

TEST_CASE("attention: query heads share key/value heads") {
  compare(Problem(2, 37, 4, 2, 8));
  compare(Problem(1, 70, 6, 1, 5));
}

TEST_CASE("attention: dropout on the probabilities, forward and backward by one mask") {
  compare(Problem(2, 33, 2, 2, 8, 0.4f));
  compare(Problem(2, 130, 4, 2, 5, 0.2f));
  compare(Problem(1, 301, 1, 1, 4, 0.1f));
}

TEST_CASE("attention: large scores neither overflow nor lose the largest") {
  // |q.k| reaches 40 * 40 * 16 / 4: exp of it would overflow, and a softmax row is nearly one key.
  const Problem p(1, 300, 1, 1, 16, 0, 40);
  const Result got = run(p);
  const Exact want = exact(p);
  CHECK(test::relative_error(got.lse, want.lse) < 1e-6);
  // Scores near 2000 err by 2e-4.
  CHECK(test::max_error(got.o, want.o) < 40 * 2e-3);
}

TEST_CASE("attention: a later token changes nothing before it") {
  Problem p(1, 150, 2, 2, 8);
  const Result first = run(p);
  const auto size = static_cast<long>(p.row);
  std::fill(p.qkv.end() - size, p.qkv.end(), 9.0f);
  const Result second = run(p);
  const long before = 149 * 16;
  CHECK(Floats(first.o.begin(), first.o.begin() + before) == Floats(second.o.begin(), second.o.begin() + before));
  CHECK(first.o != second.o);
}

TEST_CASE("attention: a batch cut in two gives the bits of the whole, dropout included") {
  const Problem whole(3, 40, 2, 2, 8, 0.3f);
  const Result all = run(whole);
  Floats o, dqkv;
  for (int64_t b = 0; b < 3; ++b) {
    Problem part = whole;
    part.s.B = 1;
    part.s.dropout.first_sample += b;
    const auto cut = [&](const Floats& x) {
      const auto size = static_cast<long>(x.size()) / 3;
      return Floats(x.begin() + b * size, x.begin() + (b + 1) * size);
    };
    part.qkv = cut(whole.qkv);
    part.d_o = cut(whole.d_o);
    const Result r = run(part);
    o.insert(o.end(), r.o.begin(), r.o.end());
    dqkv.insert(dqkv.end(), r.dqkv.begin(), r.dqkv.end());
  }
  CHECK(o == all.o);
  CHECK(dqkv == all.dqkv);
}

TEST_CASE("attention: refuses heads that do not divide, short strides and short views") {
  Context context(make_cpu_backend());
  test::Buffers b(context);
  View x = b.out(2 * 4 * 6), lse = b.out(8);
  AttentionShape s{.B = 1,
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
    test::expect_error([&] { context.kernels().attention(x, lse, x, x, x, bad); }, word);
  };
  expect([](AttentionShape& a) { a.H = 3, a.q_stride = a.o_stride = 9; }, "cannot share");
  expect([](AttentionShape& a) { a.k_stride = 5; }, "shorter than");
  expect([](AttentionShape& a) { a.scale = 0; }, "scale 0");
  expect([](AttentionShape& a) { a.T = 5; }, "lse has 8 elements, 10 are needed");
  expect([](AttentionShape& a) { a.B = 3; }, "o has 48 elements, 72 are needed");
}

}  // namespace
}  // namespace trencadis
