// The general operations against naive loops in double: every shape in which operands repeat, ragged sizes around the
// lanes and chunks of the kernels, and special values.
#include "kernel_test.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr double kUlp = 1.0 / (1 << 23);

const std::vector<int64_t> kSizes = {0, 1, 15, 17, 1000, 16385, 40000};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double tanh_argument(double x) { return std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }

struct Function {
  const char* name;
  Unary op;
  double (*f)(double);
  double (*derivative)(double);
  float scale, offset;
};
const Function kFunctions[] = {
    {"exp", Unary::exp, [](double x) { return std::exp(x); }, [](double x) { return std::exp(x); }, 4, 0},
    {"log", Unary::log, [](double x) { return std::log(x); }, [](double x) { return 1 / x; }, 4, 4.01f},
    {"sqrt", Unary::sqrt, [](double x) { return std::sqrt(x); }, [](double x) { return 0.5 / std::sqrt(x); }, 4, 4.01f},
    {"tanh", Unary::tanh, [](double x) { return std::tanh(x); },
     [](double x) { return 1 - std::tanh(x) * std::tanh(x); }, 4, 0},
    {"sigmoid", Unary::sigmoid, sigmoid, [](double x) { return sigmoid(x) * sigmoid(-x); }, 6, 0},
    {"relu", Unary::relu, [](double x) { return std::max(x, 0.0); }, [](double x) { return x > 0 ? 1.0 : 0.0; }, 4, 0},
    {"silu", Unary::silu, [](double x) { return x * sigmoid(x); },
     [](double x) { return sigmoid(x) * (1 + x * sigmoid(-x)); }, 6, 0},
    {"gelu", Unary::gelu, [](double x) { return 0.5 * x * (1 + std::tanh(tanh_argument(x))); },
     [](double x) {
       const double t = std::tanh(tanh_argument(x));
       return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
     },
     6, 0}};

double derivative(Binary op, int operand, double a, double b) {
  switch (op) {
    case Binary::add:
      return 1;
    case Binary::sub:
      return operand == 0 ? 1 : -1;
    case Binary::mul:
      return operand == 0 ? b : a;
    default:
      return operand == 0 ? 1 / b : -a / b / b;
  }
}
const Binary kBinary[] = {Binary::add, Binary::sub, Binary::mul, Binary::div};

// A loop as a test says it: sizes, and in which dimensions a and b are repeated. Dense otherwise.
struct Broadcast {
  std::vector<int64_t> sizes;
  std::vector<bool> a_repeats, b_repeats;

  Loop loop() const {
    Loop loop;
    for (size_t d = 0; d < sizes.size(); ++d) loop.push(sizes[d], {step(a_repeats, d), step(b_repeats, d)});
    return loop;
  }
  int64_t step(const std::vector<bool>& repeats, size_t d) const { return repeats[d] ? 0 : elements(repeats, d + 1); }
  int64_t elements(const std::vector<bool>& repeats, size_t from = 0) const {
    int64_t n = 1;
    for (size_t d = from; d < sizes.size(); ++d) n *= repeats[d] ? 1 : sizes[d];
    return n;
  }
  int64_t count() const { return elements(std::vector<bool>(sizes.size(), false)); }
  // The element of an operand that element i of the result reads.
  size_t at(const std::vector<bool>& repeats, int64_t i) const {
    int64_t place = 0;
    for (size_t d = sizes.size(); d-- > 0; i /= sizes[d]) place += i % sizes[d] * step(repeats, d);
    return static_cast<size_t>(place);
  }
};

const std::vector<Broadcast> kBroadcasts = {
    {{}, {}, {}},
    {{1}, {false}, {false}},
    {{40000}, {false}, {false}},
    {{40000}, {false}, {true}},
    {{17}, {true}, {false}},
    {{33, 19}, {false, false}, {true, false}},  // a row for all rows
    {{33, 19}, {false, true}, {false, false}},  // a column for all columns
    {{5, 9000}, {false, true}, {true, false}},  // both at once; rows of several chunks
    {{700, 3}, {false, false}, {true, false}},  // columns of several chunks
    {{2500, 17}, {true, false}, {false, true}},
    {{3, 5, 7}, {false, true, false}, {true, false, true}},
    {{70, 2, 3}, {true, false, true}, {false, true, false}},
    {{2, 3, 4, 5}, {false, true, false, true}, {false, false, true, false}},
    {{2, 3, 2, 3, 2, 3}, {false, true, false, true, false, true}, {true, false, true, false, true, false}},
    {{3, 0, 2}, {false, true, false}, {true, false, false}}};

}  // namespace

TEST_CASE("functions of one argument, and their derivatives, also in place") {
  for (const Function& f : kFunctions)
    for (int64_t n : kSizes) {
      CAPTURE(std::string(f.name));
      CAPTURE(n);
      auto x = random_floats(n, 1, f.scale);
      for (float& v : x) v += f.offset;
      const auto dy = random_floats(n, 2);
      std::vector<double> want, want_dx;
      for (size_t i = 0; i < x.size(); ++i) {
        want.push_back(f.f(x[i]));
        want_dx.push_back(dy[i] * f.derivative(x[i]));
      }
      const auto y = same_bits([&](Buffers& b) { b.kernels().unary(b.out(n), b.in(x), f.op); }).get();
      CHECK(relative_error(y, want) <= 4 * kUlp);
      CHECK(same_bits([&](Buffers& b) {
              View v = b.inout(x);
              b.kernels().unary(v, v, f.op);
            }).get() == y);
      const auto& saved = derivative_reads_result(f.op) ? y : x;
      const auto dx =
          same_bits([&](Buffers& b) { b.kernels().unary_backward(b.out(n), b.in(dy), b.in(saved), f.op); }).get();
      CHECK(relative_error(dx, want_dx) <= 8 * kUlp);
      CHECK(same_bits([&](Buffers& b) {
              View v = b.inout(dy);
              b.kernels().unary_backward(v, v, b.in(saved), f.op);
            }).get() == dx);
    }
}

TEST_CASE("functions far from zero and of what is no number") {
  const std::vector<float> x = {kInf, -kInf, kNaN, 0.0f, -1.0f, 100.0f, -100.0f};
  const auto of = [&](Unary op) {
    return same_bits([&](Buffers& b) { b.kernels().unary(b.out(7), b.in(x), op); }).get();
  };
  const auto same = [](const std::vector<float>& got, const std::vector<float>& want) {
    for (size_t i = 0; i < want.size(); ++i) {
      CAPTURE(i);
      CHECK((got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))));
    }
  };
  same(of(Unary::exp), {kInf, 0, kNaN, 1, of(Unary::exp)[4], kInf, of(Unary::exp)[6]});
  same(of(Unary::log), {kInf, kNaN, kNaN, -kInf, kNaN, of(Unary::log)[5], kNaN});
  same(of(Unary::sqrt), {kInf, kNaN, kNaN, 0, kNaN, 10, kNaN});
  same(of(Unary::tanh), {1, -1, kNaN, 0, of(Unary::tanh)[4], 1, -1});
  same(of(Unary::sigmoid), {1, 0, kNaN, 0.5f, of(Unary::sigmoid)[4], 1, of(Unary::sigmoid)[6]});
  same(of(Unary::relu), {kInf, 0, kNaN, 0, 0, 100, 0});
  CHECK(of(Unary::exp)[4] == doctest::Approx(std::exp(-1.0)));
  CHECK(of(Unary::log)[5] == doctest::Approx(std::log(100.0)));
  CHECK(of(Unary::sigmoid)[6] < 1e-30f);
  CHECK(std::abs(of(Unary::silu)[6]) < 1e-30f);
}

TEST_CASE("arithmetic over every kind of loop") {
  for (const Broadcast& s : kBroadcasts)
    for (Binary op : kBinary) {
      CAPTURE(s.sizes.size());
      CAPTURE(s.count());
      const int64_t n = s.count();
      const auto a = random_floats(s.elements(s.a_repeats), 1);
      auto b = random_floats(s.elements(s.b_repeats), 2, 0.5f);
      for (float& v : b) v += 2;
      std::vector<float> want;
      for (int64_t i = 0; i < n; ++i) {
        const float l = a[s.at(s.a_repeats, i)], r = b[s.at(s.b_repeats, i)];
        want.push_back(op == Binary::add ? l + r : op == Binary::sub ? l - r : op == Binary::mul ? l * r : l / r);
      }
      const Loop loop = s.loop();
      CHECK(same_bits([&](Buffers& c) { c.kernels().binary(c.out(n), c.in(a), c.in(b), op, loop); }).get() == want);
    }
}

TEST_CASE("the gradient of an operand is a sum over the dimensions in which it is repeated") {
  for (const Broadcast& s : kBroadcasts)
    for (Binary op : kBinary)
      for (int operand : {0, 1}) {
        CAPTURE(s.sizes.size());
        CAPTURE(s.count());
        CAPTURE(operand);
        const auto& repeats = operand == 0 ? s.a_repeats : s.b_repeats;
        const int64_t n = s.count(), mine = s.elements(repeats);
        const auto a = random_floats(s.elements(s.a_repeats), 1), dy = random_floats(n, 3);
        auto b = random_floats(s.elements(s.b_repeats), 2, 0.5f);
        for (float& v : b) v += 2;
        std::vector<double> want(static_cast<size_t>(mine), 0.0), size(want);
        for (int64_t i = 0; i < n; ++i) {
          const double term =
              dy[static_cast<size_t>(i)] * derivative(op, operand, a[s.at(s.a_repeats, i)], b[s.at(s.b_repeats, i)]);
          want[s.at(repeats, i)] += term;
          size[s.at(repeats, i)] += std::abs(term);
        }
        const Loop loop = s.loop();
        const auto got = same_bits([&](Buffers& c) {
                           c.kernels().binary_backward(c.out(mine), c.in(dy), c.in(a), c.in(b), op, operand, loop);
                         }).get();
        REQUIRE(got.size() == want.size());
        for (size_t k = 0; k < got.size(); ++k) REQUIRE(std::abs(got[k] - want[k]) <= 8 * kUlp * size[k]);
        if (op == Binary::add || op == Binary::sub) {  // reads neither
          const auto again = same_bits([&](Buffers& c) {
                               c.kernels().binary_backward(c.out(mine), c.in(dy), {}, {}, op, operand, loop);
                             }).get();
          CHECK(again == got);
        }
      }
}

namespace {
const std::vector<Axis> kAxes = {{1, 1, 1},   {1, 7, 1},   {3, 17, 1},  {1, 100000, 1}, {500, 33, 1},
                                 {2, 5, 3},   {1, 700, 3}, {3, 70, 40}, {4, 1, 9},      {2, 3, 9000},
                                 {700, 2, 1}, {5, 2, 1},   {0, 3, 2},   {3, 9000, 1},   {2, 100, 16}};
size_t place(const Axis& axis, int64_t row, int64_t j) {
  return static_cast<size_t>(row / axis.inner * axis.n * axis.inner + j * axis.inner + row % axis.inner);
}
}  // namespace

TEST_CASE("sum, mean and max along an axis, and their backward passes") {
  for (const Axis& axis : kAxes) {
    CAPTURE(axis.outer);
    CAPTURE(axis.n);
    CAPTURE(axis.inner);
    const auto x = random_floats(axis.count(), 1), dy = random_floats(axis.rows(), 2);
    for (Reduce op : {Reduce::sum, Reduce::mean, Reduce::max}) {
      std::vector<double> want, want_dx(x.size(), 0.0);
      for (int64_t row = 0; row < axis.rows(); ++row) {
        const double d = dy[static_cast<size_t>(row)], n = static_cast<double>(axis.n);
        double total = 0;
        int64_t first = 0;
        for (int64_t j = 0; j < axis.n; ++j) {
          total += x[place(axis, row, j)];
          if (x[place(axis, row, j)] > x[place(axis, row, first)]) first = j;
          if (op != Reduce::max) want_dx[place(axis, row, j)] = op == Reduce::mean ? d / n : d;
        }
        if (op == Reduce::max) want_dx[place(axis, row, first)] = d;
        want.push_back(op == Reduce::max ? x[place(axis, row, first)] : op == Reduce::mean ? total / n : total);
      }
      const auto y = same_bits([&](Buffers& b) { b.kernels().reduce(b.out(axis.rows()), b.in(x), op, axis); }).get();
      // The error of a sum is in units of its terms, which are below 1 and have random signs.
      const double terms = op == Reduce::sum ? std::sqrt(static_cast<double>(axis.n)) : 1;
      CHECK(max_error(y, want) <= (op == Reduce::max ? 0 : 8 * kUlp * terms));
      const auto dx = same_bits([&](Buffers& b) {
                        b.kernels().reduce_backward(b.out(axis.count()), b.in(dy), b.in(x), b.in(y), op, axis);
                      }).get();
      CHECK(max_error(dx, want_dx) <= kUlp);
    }
  }
}

TEST_CASE("sums and means of nothing; the first of equals; NaN is the largest") {
  const std::vector<float> none;
  const Axis empty{3, 0, 1};
  CHECK(same_bits([&](Buffers& b) { b.kernels().reduce(b.out(3), b.in(none), Reduce::sum, empty); }).get() ==
        std::vector<float>(3, 0.0f));
  for (const auto& [x, first] : {std::pair{std::vector<float>{1, 3, 3, 2, 3}, 1},
                                 {{-kInf, -kInf, -kInf, -kInf, -kInf}, 0},
                                 {{5, 1, kNaN, 9, kNaN}, 2},
                                 {{kNaN, 1, 1, 1, 1}, 0}})
    for (const Axis& axis : {Axis{1, 5, 1}, Axis{1, 5, 2}, Axis{2, 5, 1}}) {
      std::vector<float> values(static_cast<size_t>(axis.count()));
      for (int64_t row = 0; row < 2 && row < axis.rows(); ++row)
        for (int64_t j = 0; j < 5; ++j) values[place(axis, row, j)] = x[static_cast<size_t>(j)];
      const std::vector<float> ones(static_cast<size_t>(axis.rows()), 1.0f);
      const Outputs out = same_bits([&](Buffers& b) {
        View y = b.out(axis.rows()), dx = b.out(axis.count());
        b.kernels().reduce(y, b.in(values), Reduce::max, axis);
        b.kernels().reduce_backward(dx, b.in(ones), b.in(values), y, Reduce::max, axis);
      });
      for (int64_t row = 0; row < axis.rows(); ++row) {
        const float y = out.get(0)[static_cast<size_t>(row)], want = x[static_cast<size_t>(first)];
        CHECK((y == want || (std::isnan(y) && std::isnan(want))));
        for (int64_t j = 0; j < 5; ++j) CHECK(out.get(1)[place(axis, row, j)] == (j == first ? 1 : 0));
      }
    }
}

TEST_CASE("softmax, its logarithm, and their backward passes") {
  for (const Axis& axis : kAxes)
    for (const bool logarithm : {false, true}) {
      CAPTURE(axis.outer);
      CAPTURE(axis.n);
      CAPTURE(axis.inner);
      CAPTURE(logarithm);
      const auto x = random_floats(axis.count(), 1, 10), dy = random_floats(axis.count(), 2);
      std::vector<double> want(x.size()), want_dx(x.size());
      for (int64_t row = 0; row < axis.rows(); ++row) {
        double total = 0, dot = 0;
        for (int64_t j = 0; j < axis.n; ++j) total += std::exp(static_cast<double>(x[place(axis, row, j)]));
        for (int64_t j = 0; j < axis.n; ++j) {
          const size_t i = place(axis, row, j);
          const double p = std::exp(static_cast<double>(x[i])) / total;
          want[i] = logarithm ? std::log(p) : p;
          dot += dy[i] * (logarithm ? 1 : p);
        }
        for (int64_t j = 0; j < axis.n; ++j) {
          const size_t i = place(axis, row, j);
          const double p = logarithm ? std::exp(want[i]) : want[i];
          want_dx[i] = logarithm ? dy[i] - p * dot : p * (dy[i] - dot);
        }
      }
      const auto y =
          same_bits([&](Buffers& b) { b.kernels().softmax(b.out(axis.count()), b.in(x), logarithm, axis); }).get();
      CHECK(max_error(y, want) <= (logarithm ? 20 : 1) * 4 * kUlp);
      const auto dx = same_bits([&](Buffers& b) {
                        b.kernels().softmax_backward(b.out(axis.count()), b.in(dy), b.in(y), logarithm, axis);
                      }).get();
      CHECK(max_error(dx, want_dx) <= 32 * kUlp);
      CHECK(same_bits([&](Buffers& b) {
              View d = b.inout(dy);
              b.kernels().softmax_backward(d, d, b.in(y), logarithm, axis);
            }).get() == dx);
    }
}

TEST_CASE("softmax far from zero") {
  const std::vector<float> x = {1e30f, 0, -kInf, 1e30f};
  for (const Axis& axis : {Axis{1, 4, 1}, Axis{1, 2, 2}}) {
    const auto y = same_bits([&](Buffers& b) { b.kernels().softmax(b.out(4), b.in(x), false, axis); }).get();
    CHECK(y == (axis.inner == 1 ? std::vector<float>{0.5f, 0, 0, 0.5f} : std::vector<float>{1, 0, 0, 1}));
    const auto log_y = same_bits([&](Buffers& b) { b.kernels().softmax(b.out(4), b.in(x), true, axis); }).get();
    CHECK(log_y[0] == (axis.inner == 1 ? -std::log(2.0f) : 0));
    CHECK(log_y[1] == -1e30f);
    CHECK(log_y[2] == -kInf);
  }
}

TEST_CASE("copy_strided: transposes and parts; what the loop does not reach stays") {
  struct Case {
    std::vector<int64_t> sizes, x_steps, y_steps;
    int64_t x_size, y_size;
  };
  for (const Case& c :
       {Case{{5}, {1}, {1}, 5, 5}, Case{{70, 130}, {1, 70}, {130, 1}, 9100, 9100},
        Case{{3, 65, 5}, {325, 1, 65}, {325, 5, 1}, 975, 975}, Case{{4, 3, 2}, {1, 4, 12}, {6, 2, 1}, 24, 24},
        Case{{7, 3}, {5, 1}, {3, 1}, 33, 21}, Case{{7, 3}, {3, 1}, {5, 1}, 21, 40}, Case{{9}, {3}, {2}, 25, 20},
        Case{{200, 200}, {1, 200}, {300, 1}, 40000, 60000}, Case{{0, 3}, {3, 1}, {3, 1}, 0, 4}}) {
    CAPTURE(c.x_size);
    Loop loop;
    for (size_t d = 0; d < c.sizes.size(); ++d) loop.push(c.sizes[d], {c.y_steps[d], c.x_steps[d]});
    const auto x = random_floats(c.x_size, 1), before = random_floats(c.y_size, 2);
    auto want = before;
    int64_t count = 1;
    for (int64_t n : c.sizes) count *= n;
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i, from = 0, to = 0;
      for (size_t d = c.sizes.size(); d-- > 0; rest /= c.sizes[d]) {
        from += rest % c.sizes[d] * c.x_steps[d];
        to += rest % c.sizes[d] * c.y_steps[d];
      }
      want[static_cast<size_t>(to)] = x[static_cast<size_t>(from)];
    }
    CHECK(same_bits([&](Buffers& b) { b.kernels().copy_strided(b.inout(before), b.in(x), loop); }).get() == want);
  }
}

TEST_CASE("batched_matmul: every matrix is what matmul makes of it, to the bit") {
  struct Case {
    Broadcast batch;
    int64_t M, N, K;
  };
  for (const Case& c :
       {Case{{{}, {}, {}}, 3, 5, 2}, Case{{{4}, {false}, {false}}, 3, 5, 2}, Case{{{3}, {false}, {true}}, 1, 1, 1},
        Case{{{2, 3}, {false, true}, {true, false}}, 17, 3, 33}, Case{{{70}, {false}, {false}}, 5, 7, 3},
        Case{{{2}, {true}, {false}}, 120, 90, 110}, Case{{{3}, {false}, {false}}, 2, 3, 0},
        Case{{{2, 2, 2}, {false, true, false}, {false, false, true}}, 2, 3, 4}, Case{{{0}, {false}, {true}}, 2, 3, 4}})
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true}) {
        const Broadcast& s = c.batch;
        CAPTURE(s.count());
        CAPTURE(c.K);
        const int64_t count = s.count(), MN = c.M * c.N, MK = c.M * c.K, KN = c.K * c.N;
        const auto a = random_floats(s.elements(s.a_repeats) * MK, 1),
                   b = random_floats(s.elements(s.b_repeats) * KN, 2);
        const Loop loop = s.loop();
        const auto got = same_bits([&](Buffers& buffers) {
                           buffers.kernels().batched_matmul(buffers.out(count * MN), buffers.in(a), buffers.in(b), c.M,
                                                            c.N, c.K, trans_a, trans_b, loop);
                         }).get();
        const auto want = same_bits([&](Buffers& buffers) {
                            const View y = buffers.out(count * MN), l = buffers.in(a), r = buffers.in(b);
                            for (int64_t i = 0; i < count; ++i)
                              buffers.kernels().matmul(y.slice(i * MN, MN),
                                                       l.slice(static_cast<int64_t>(s.at(s.a_repeats, i)) * MK, MK),
                                                       r.slice(static_cast<int64_t>(s.at(s.b_repeats, i)) * KN, KN),
                                                       c.M, c.N, c.K, trans_a, trans_b, false);
                          }).get();
        CHECK(got == want);
      }
}

TEST_CASE("a loop merges dimensions that are walked like one, and has a bound") {
  Loop loop;
  loop.push(4, {6, 0});
  loop.push(1, {77, 99});
  loop.push(3, {2, 0});
  loop.push(2, {1, 1});
  CHECK(loop.rank == 2);
  CHECK(loop.size[0] == 12);
  CHECK(loop.step[0][0] == 2);
  CHECK(loop.count() == 24);
  CHECK(loop.span(0) == 24);
  CHECK(loop.span(1) == 2);
  for (int i = 0; i < 4; ++i) loop.push(2, {0, i % 2});
  expect_error([&] { loop.push(2, {5, 7}); }, "more than 6 dimensions");
}

TEST_CASE("arguments that do not fit are refused") {
  Context context(make_cpu_backend());
  Kernels& k = context.kernels();
  const Tensor three = Tensor::zeros(context, {3}), six = Tensor::zeros(context, {2, 3});
  Loop loop;
  loop.push(2, {3, 0});
  loop.push(3, {1, 1});
  expect_error([&] { k.unary(three, six, Unary::exp); }, "unary: y has 3 elements, 6 are needed");
  expect_error([&] { k.unary_backward(six, six, three, Unary::exp); }, "unary_backward: saved has 3");
  expect_error([&] { k.binary(three, six, three, Binary::add, loop); }, "binary: y has 3");
  expect_error([&] { k.binary(six, three, three, Binary::add, loop); }, "binary: a has 3");
  expect_error([&] { k.binary_backward(three, six, {}, {}, Binary::mul, 0, loop); }, "binary_backward: d has 3");
  expect_error([&] { k.binary_backward(six, six, {}, {}, Binary::mul, 0, loop); }, "binary_backward: b has 0");
  expect_error([&] { k.reduce(three, six, Reduce::sum, {2, 3, 2}); }, "reduce: y has 3 elements, 4");
  expect_error([&] { k.reduce(three, six, Reduce::max, {3, 0, 1}); }, "no elements");
  expect_error([&] { k.softmax(three, six, false, {2, 3, 1}); }, "softmax: y has 3");
  expect_error([&] { k.copy_strided(three, six, loop); }, "copy_strided: y has 3");
  expect_error([&] { k.batched_matmul(three, six, six, 2, 2, 3, false, false, {}); }, "batched_matmul: c has 3");
}
