// The general operations on the device against the CPU's: every way to repeat an operand, rows and columns of one chunk
// and of several, both element types.
#include "cuda_kernel_test.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

// Around one group (4 or 8 elements), and more than one block moves.
const std::vector<int64_t> kSizes = {1, 3, 8, 9, 257, 2500};
constexpr Unary kUnary[] = {Unary::exp,     Unary::log,  Unary::sqrt, Unary::tanh,
                            Unary::sigmoid, Unary::relu, Unary::silu, Unary::gelu};
constexpr Binary kBinary[] = {Binary::add, Binary::sub, Binary::mul, Binary::div};

// Two libraries' functions within 3 ulp of each other, and a few more operations.
constexpr double kBound = 1e-6;

std::vector<float> positive(int64_t n, uint64_t seed) {
  auto values = random_floats(n, seed, 0.5f);
  for (float& v : values) v += 2;
  return values;
}

struct Case {
  std::vector<int64_t> sizes, a_steps, b_steps;
  Loop loop() const {
    Loop loop;
    for (size_t d = 0; d < sizes.size(); ++d) loop.push(sizes[d], {a_steps[d], b_steps[d]});
    return loop;
  }
};
const std::vector<Case> kLoops = {{{}, {}, {}},
                                  {{600}, {1}, {1}},
                                  {{600}, {1}, {0}},
                                  {{9}, {0}, {1}},
                                  {{600}, {0}, {0}},
                                  {{33, 19}, {19, 1}, {0, 1}},
                                  {{33, 19}, {1, 0}, {19, 1}},
                                  {{3, 4200}, {1, 0}, {0, 1}},  // rows of several chunks
                                  {{300, 3}, {3, 1}, {0, 1}},   // columns of several chunks
                                  {{3, 5, 7}, {7, 0, 1}, {0, 7, 1}},
                                  {{2, 3, 4, 5}, {12, 4, 0, 0}, {0, 20, 5, 1}},
                                  {{2, 3, 2, 3, 2, 3}, {12, 0, 6, 0, 1, 0}, {0, 9, 0, 3, 0, 1}}};
const std::vector<Axis> kAxes = {{1, 1, 1},   {3, 7, 1},  {5, 17, 1},   {1, 9000, 1}, {2, 5, 3},
                                 {1, 300, 3}, {40, 8, 2}, {300, 33, 1}, {4, 1, 9},    {2, 3, 700}};

}  // namespace

TEST_CASE("functions of one argument, and their derivatives, also in place") {
  for (DType type : kFloatTypes)
    for (Unary op : kUnary)
      for (int64_t n : kSizes) {
        CAPTURE(static_cast<int>(op));
        CAPTURE(n);
        const auto x = op == Unary::log || op == Unary::sqrt ? positive(n, 1) : random_floats(n, 1, 5);
        const auto saved = derivative_reads_result(op) ? random_floats(n, 2) : x, dy = random_floats(n, 3);
        const auto call = [&](auto& b) {
          View y = b.values_out(n), in_place = b.values_inout(x), dx = b.values_out(n), on_dy = b.values_inout(dy);
          b.kernels().unary(y, b.values_in(x), op);
          b.kernels().unary(in_place, in_place, op);
          const View kept = b.values_in(op == Unary::sqrt ? x : saved);
          b.kernels().unary_backward(dx, b.values_in(dy), kept, op);
          b.kernels().unary_backward(on_dy, on_dy, kept, op);
        };
        const Result got = on_device(type, call), want = on_cpu(type, call);
        CHECK(error_ratio(got, want, 0, kBound) <= 1);
        CHECK(got.bytes()[1] == got.bytes()[0]);
        CHECK(error_ratio(got, want, 2, kBound) <= 1);
        CHECK(got.bytes()[3] == got.bytes()[2]);
      }
}

TEST_CASE("functions far from zero and of what is no number") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), 0, -1, 90, -90};
  for (Unary op : kUnary) {
    CAPTURE(static_cast<int>(op));
    const auto call = [&](auto& b) { b.kernels().unary(b.values_out(7), b.values_in(x), op); };
    const auto got = on_device(DType::f32, call).values(), want = on_cpu(DType::f32, call).values();
    for (size_t i = 0; i < x.size(); ++i) {
      CAPTURE(i);
      CHECK(close(got[i], want[i], 1e-6));
    }
  }
}

TEST_CASE("arithmetic over every kind of loop: one operation an element, the CPU's bits") {
  for (DType type : kFloatTypes)
    for (const Case& c : kLoops)
      for (Binary op : kBinary) {
        CAPTURE(c.sizes.size());
        const Loop loop = c.loop();
        const auto a = random_floats(loop.span(0), 1), b_values = positive(loop.span(1), 2);
        const auto call = [&](auto& b) {
          b.kernels().binary(b.values_out(loop.count()), b.values_in(a), b.values_in(b_values), op, loop);
        };
        CHECK(same_values(on_device(type, call), on_cpu(type, call)));
      }
}

TEST_CASE("the gradients of operands that are repeated") {
  for (DType type : kFloatTypes)
    for (const Case& c : kLoops)
      for (Binary op : kBinary)
        for (int operand : {0, 1}) {
          CAPTURE(c.sizes.size());
          CAPTURE(operand);
          const Loop loop = c.loop();
          const PartedLoop parted = part(loop, operand);
          const auto a = random_floats(loop.span(0), 1), b_values = positive(loop.span(1), 2);
          const auto dy = random_floats(loop.count(), 3);
          const auto call = [&](auto& b) {
            View d = b.values_out(parted.kept.count());
            b.kernels().binary_backward(d, b.values_in(dy), b.values_in(a), b.values_in(b_values), op, operand, loop);
          };
          // Terms of up to 2.5, with random signs.
          const double scale = 2.5 * std::sqrt(static_cast<double>(parted.summed.count()));
          CHECK(error_ratio(on_device(type, call), on_cpu(type, call), 0, kBound, scale) <= 1);
        }
}

TEST_CASE("sum, mean and max along an axis, and their backward passes") {
  for (DType type : kFloatTypes)
    for (const Axis& axis : kAxes)
      for (Reduce op : {Reduce::sum, Reduce::mean, Reduce::max}) {
        CAPTURE(axis.outer);
        CAPTURE(axis.n);
        CAPTURE(axis.inner);
        const auto x = random_floats(axis.count(), 1), dy = random_floats(axis.rows(), 2);
        const auto forward = [&](auto& b) { b.kernels().reduce(b.values_out(axis.rows()), b.values_in(x), op, axis); };
        const Result got = on_device(type, forward), want = on_cpu(type, forward);
        if (op == Reduce::max) CHECK(same_values(got, want));
        const double scale = op == Reduce::sum ? std::sqrt(static_cast<double>(axis.n)) : 1;
        CHECK(error_ratio(got, want, 0, kBound, scale) <= 1);
        const auto y = want.values();
        const auto backward = [&](auto& b) {
          View dx = b.values_out(axis.count());
          b.kernels().reduce_backward(dx, b.values_in(dy), b.values_in(x), b.values_in(y), op, axis);
        };
        CHECK(same_values(on_device(type, backward), on_cpu(type, backward)));
      }
}

TEST_CASE("the first of equals, NaN, and sums of nothing") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {1, 3, 3, 2, nan, 5, nan, 7, 4, 4, 4, 4}, ones(6, 1.0f), none;
  for (const Axis& axis : {Axis{3, 4, 1}, Axis{1, 4, 3}, Axis{2, 2, 3}, Axis{1, 12, 1}}) {
    const auto call = [&](auto& b) {
      View y = b.values_out(axis.rows()), dx = b.values_out(12);
      b.kernels().reduce(y, b.values_in(x), Reduce::max, axis);
      b.kernels().reduce_backward(dx, b.values_in(ones), b.values_in(x), y, Reduce::max, axis);
    };
    const Result got = on_device(DType::f32, call), want = on_cpu(DType::f32, call);
    CHECK(error_ratio(got, want, 0, 0) == 0);
    CHECK(got.values(1) == want.values(1));
  }
  const auto empty = [&](auto& b) {
    View sums = b.values_out(3), gradient = b.values_out(2);
    b.kernels().reduce(sums, b.values_in(none), Reduce::sum, {3, 0, 1});
    Loop loop;
    loop.push(0, {0, 1});
    loop.push(2, {1, 0});
    b.kernels().binary_backward(gradient, b.values_in(none), {}, {}, Binary::add, 0, loop);
    b.kernels().unary(b.values_out(0), b.values_in(none), Unary::exp);
    b.kernels().softmax(b.values_out(0), b.values_in(none), false, {0, 3, 1});
  };
  for (const Result& r : {on_device(DType::f32, empty), on_cpu(DType::f32, empty)}) {
    CHECK(r.values(0) == std::vector<float>(3, 0.0f));
    CHECK(r.values(1) == std::vector<float>(2, 0.0f));
  }
}

TEST_CASE("softmax, its logarithm, and their backward passes, also in place") {
  for (DType type : kFloatTypes)
    for (const Axis& axis : kAxes)
      for (const bool logarithm : {false, true}) {
        CAPTURE(axis.outer);
        CAPTURE(axis.n);
        CAPTURE(axis.inner);
        CAPTURE(logarithm);
        const int64_t n = axis.count();
        const auto x = random_floats(n, 1, 5), dy = random_floats(n, 2);
        const auto forward = [&](auto& b) { b.kernels().softmax(b.values_out(n), b.values_in(x), logarithm, axis); };
        const Result want = on_cpu(type, forward);
        CHECK(error_ratio(on_device(type, forward), want, 0, kBound) <= 1);
        const auto y = want.values();
        const auto backward = [&](auto& b) {
          View dx = b.values_out(n), in_place = b.values_inout(dy);
          b.kernels().softmax_backward(dx, b.values_in(dy), b.values_in(y), logarithm, axis);
          b.kernels().softmax_backward(in_place, in_place, b.values_in(y), logarithm, axis);
        };
        const Result got = on_device(type, backward);
        // dy - p * (a sum of n terms).
        CHECK(error_ratio(got, on_cpu(type, backward), 0, kBound, std::sqrt(static_cast<double>(axis.n))) <= 1);
        CHECK(got.bytes()[1] == got.bytes()[0]);
      }
}

TEST_CASE("copy_strided: transposes and parts; what the loop does not reach stays") {
  for (DType type : kFloatTypes)
    for (const Case& c : {Case{{}, {}, {}}, Case{{5}, {1}, {1}}, Case{{30, 20}, {20, 1}, {1, 30}},
                          Case{{4, 3, 2}, {6, 2, 1}, {1, 4, 12}}, Case{{7, 3}, {3, 1}, {5, 1}},
                          Case{{7, 3}, {5, 1}, {3, 1}}, Case{{9}, {2}, {3}}, Case{{0, 2}, {2, 1}, {2, 1}}}) {
      const Loop loop = c.loop();
      const auto x = random_floats(loop.span(1), 1), before = random_floats(loop.span(0), 2);
      const auto call = [&](auto& b) { b.kernels().copy_strided(b.values_inout(before), b.values_in(x), loop); };
      CHECK(same_values(on_device(type, call), on_cpu(type, call)));
    }
}

TEST_CASE("batched_matmul: dense, repeated, transposed") {
  struct Sizes {
    Case batch;
    int64_t M, N, K;
  };
  for (DType type : kFloatTypes)
    for (const Sizes& s :
         {Sizes{{{}, {}, {}}, 3, 5, 2}, Sizes{{{4}, {1}, {1}}, 3, 5, 2}, Sizes{{{3}, {1}, {0}}, 1, 1, 1},
          Sizes{{{2, 3}, {1, 0}, {0, 1}}, 17, 3, 33}, Sizes{{{2, 2, 2}, {2, 0, 1}, {2, 1, 0}}, 2, 3, 4},
          Sizes{{{3}, {1}, {1}}, 2, 3, 0}, Sizes{{{0}, {1}, {0}}, 2, 3, 4}})
      for (const bool trans_a : {false, true})
        for (const bool trans_b : {false, true}) {
          CAPTURE(s.batch.sizes.size());
          CAPTURE(s.K);
          const Loop loop = s.batch.loop();
          const auto a = random_floats(loop.span(0) * s.M * s.K, 1),
                     b_values = random_floats(loop.span(1) * s.K * s.N, 2);
          const auto call = [&](auto& b) {
            View c = b.values_out(loop.count() * s.M * s.N);
            b.kernels().batched_matmul(c, b.values_in(a), b.values_in(b_values), s.M, s.N, s.K, trans_a, trans_b, loop);
          };
          CHECK(error_ratio(on_device(type, call), on_cpu(type, call), 0, kBound,
                            std::sqrt(static_cast<double>(s.K))) <= 1);
        }
}

TEST_CASE("arguments that do not fit are refused") {
  const std::vector<float> three = {1, 2, 3}, six = {1, 2, 3, 4, 5, 6};
  on_device(DType::f32, [&](auto& b) {
    View small = b.inout(three);
    const View large = b.in(six);
    Loop loop;
    loop.push(2, {3, 0});
    loop.push(3, {1, 1});
    expect_error([&] { b.kernels().unary(small, large, Unary::exp); }, "unary: y has 3 elements, 6 are needed");
    expect_error([&] { b.kernels().binary(small, large, small, Binary::add, loop); }, "binary: y has 3");
    expect_error([&] { b.kernels().binary_backward(small, large, {}, {}, Binary::mul, 0, loop); }, "d has 3");
    expect_error([&] { b.kernels().reduce(small, large, Reduce::max, {3, 0, 1}); }, "no elements");
    expect_error([&] { b.kernels().softmax(small, large, false, {2, 3, 1}); }, "softmax: y has 3");
    expect_error([&] { b.kernels().batched_matmul(small, large, large, 2, 2, 3, false, false, {}); }, "c has 3");
  });
}
