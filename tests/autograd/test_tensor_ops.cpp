// The general operations' gradients against finite differences: every way to broadcast, sizes of 1, odd sizes, frozen
// operands, a variable on both sides, parameters with lent gradients; and that wrong shapes are errors that print both.
#include "autograd/gradient_check.h"

namespace trencadis::test {
namespace {

using Variables = std::vector<Variable>;
using Arithmetic = Variable (*)(const Operand&, const Operand&);
using Function = Variable (*)(const Variable&);
using Reduction = Variable (*)(const Variable&, int64_t, bool);

struct NamedArithmetic {
  std::string name;
  Arithmetic op;
};
const NamedArithmetic kArithmetic[] = {{"add", add}, {"sub", sub}, {"mul", mul}, {"div", div}};

Variable leaf(Context& context, Shape shape, uint64_t seed, bool requires_grad = true) {
  return Variable(Tensor::from(context, random_floats(element_count(shape), seed), shape), requires_grad, "leaf");
}

TEST_CASE("arithmetic: every operand repeated in every position") {
  struct Shapes {
    Shape a, b, y;
  };
  const Shapes shapes[] = {{{3}, {3}, {3}},
                           {{}, {}, {}},
                           {{2, 3}, {}, {2, 3}},
                           {{}, {2, 3}, {2, 3}},
                           {{5, 17}, {17}, {5, 17}},
                           {{17}, {5, 17}, {5, 17}},
                           {{5, 17}, {5, 1}, {5, 17}},
                           {{5, 1}, {1, 17}, {5, 17}},
                           {{1, 1}, {2, 1, 3}, {2, 1, 3}},
                           {{2, 1, 3, 1}, {4, 1, 5}, {2, 4, 3, 5}},
                           {{2, 3, 1, 2}, {3, 4, 1}, {2, 3, 4, 2}},
                           {{70, 2}, {2}, {70, 2}}};
  for (const auto& [name, op] : kArithmetic)
    for (const Shapes& s : shapes)
      for (const int trained : {1, 2, 3}) {
        CAPTURE(name);
        CAPTURE(to_string(s.a));
        CAPTURE(to_string(s.b));
        // A divisor between 1.5 and 2.5.
        check_gradient({{"a", s.a, (trained & 1) != 0}, {"b", s.b, (trained & 2) != 0, 0.5f, 2}},
                       [&](Context&, const Variables& in) -> Variables {
                         const Variable y = op(in[0], in[1]);
                         REQUIRE(y.value().shape() == s.y);
                         return {y};
                       });
      }
}

TEST_CASE("arithmetic with numbers, as functions and as operators") {
  check_gradient({{"x", {3, 5}, true, 0.5f, 2}}, [](Context&, const Variables& in) -> Variables {
    const Variable& x = in[0];
    return {add(x, 2.0f), 1.0f - x, x * 0.5f, 3.0f / x, -x, (x + 1.0f) * (x - 0.25f) / 2.0f};
  });
  Context context(make_cpu_backend());
  const Variable x(Tensor::from(context, std::vector<float>{1, 2, 4}, {3}));
  CHECK(((8.0f / x - 1.0f) * 0.5f).value().to_vector() == std::vector<float>{3.5f, 1.5f, 0.5f});
}

TEST_CASE("a variable on both sides gets both gradients") {
  for (const auto& [name, op] : kArithmetic) {
    CAPTURE(name);
    if (name != "div")  // x / x has no gradient but noise
      check_gradient({{"x", {2, 7}, true, 0.5f, 2}},
                     [&](Context&, const Variables& in) -> Variables { return {op(in[0], in[0])}; });
    check_gradient({{"x", {5, 1}, true, 0.5f, 2}},
                   [&](Context&, const Variables& in) -> Variables { return {op(in[0], transpose(in[0], 0, 1))}; });
  }
  check_gradient({{"x", {5, 5}}}, [](Context&, const Variables& in) -> Variables { return {matmul(in[0], in[0])}; });
}

TEST_CASE("functions of one argument") {
  struct Case {
    std::string name;
    Function op;
    float scale, offset;
  };
  // log and sqrt where they exist; relu away from its kink, on both sides.
  for (const auto& [name, op, scale, offset] :
       {Case{"exp", exp, 2, 0}, Case{"log", log, 0.5f, 1}, Case{"sqrt", sqrt, 0.5f, 1}, Case{"tanh", tanh, 2, 0},
        Case{"sigmoid", sigmoid, 3, 0}, Case{"relu", relu, 0.5f, 1}, Case{"relu", relu, 0.5f, -1},
        Case{"silu", silu, 3, 0}, Case{"gelu", gelu, 2, 0}})
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{2, 3, 7}, Shape{65}}) {
      CAPTURE(name);
      CAPTURE(to_string(shape));
      const Function f = op;
      if (name == "relu" && offset < 0) {
        Context context(make_cpu_backend());
        Variable x = leaf(context, shape, 1);
        backward(sum(relu(x - 2.0f)));
        for (float d : x.take_gradient().to_vector()) CHECK(d == 0);
        continue;
      }
      check_gradient({{"x", shape, true, scale, offset}},
                     [f](Context&, const Variables& in) -> Variables { return {f(in[0])}; });
      // Behind another operation dy is nobody else's, and the gradient takes its place.
      check_gradient({{"x", shape, true, scale, offset}}, [f](Context&, const Variables& in) -> Variables {
        return {mul(f(in[0]), 3.0f), sum(mul(f(in[0]), f(in[0])))};
      });
    }
}

TEST_CASE("sum and mean over each axis, and over everything") {
  struct Case {
    std::string name;
    Reduction along;
    Function all;
  };
  for (const auto& [name, along, all] : {Case{"sum", sum, sum}, Case{"mean", mean, mean}})
    for (const Shape& shape : {Shape{1}, Shape{7}, Shape{3, 1}, Shape{2, 3, 5}, Shape{70, 3}, Shape{3, 70}}) {
      CAPTURE(name);
      CAPTURE(to_string(shape));
      const int64_t rank = static_cast<int64_t>(shape.size());
      const Function whole = all;
      const Reduction reduce = along;
      check_gradient({{"x", shape}}, [&](Context&, const Variables& in) -> Variables {
        const Variable y = whole(in[0]);
        REQUIRE(y.value().shape() == Shape{});
        return {y};
      });
      for (int64_t axis = -rank; axis < rank; ++axis)
        for (const bool keepdim : {false, true})
          check_gradient({{"x", shape}}, [&](Context&, const Variables& in) -> Variables {
            const Variable y = reduce(in[0], axis, keepdim);
            Shape expected = shape;
            const auto at = expected.begin() + (axis < 0 ? axis + rank : axis);
            if (keepdim)
              *at = 1;
            else
              expected.erase(at);
            REQUIRE(y.value().shape() == expected);
            return {y};
          });
    }
}

TEST_CASE("max: along an axis and over everything, the gradient to the first of the largest") {
  // Values 0.1 apart, in an order that is not theirs: the step of the differences changes no maximum.
  const auto spread = [](Context& context, const Shape& shape) {
    const int64_t n = element_count(shape);
    std::vector<float> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(0.1f * static_cast<float>(i * 11 % n));
    return Variable(Tensor::from(context, values, shape));
  };
  for (const Shape& shape : {Shape{7}, Shape{2, 3, 5}, Shape{23, 3}})
    for (int64_t axis = 0; axis < static_cast<int64_t>(shape.size()); ++axis) {
      CAPTURE(to_string(shape));
      check_gradient({{"x", shape, true, 0.01f}}, [&](Context& context, const Variables& in) -> Variables {
        const Variable y = add(in[0], spread(context, shape));
        return {max(y, axis), max(y, axis, true), max(y)};
      });
    }
  Context context(make_cpu_backend());
  Variable x(Tensor::from(context, std::vector<float>{1, 5, 5, 2, 2, 2}, {2, 3}), true);
  const Variable y = max(x, -1);
  CHECK(y.value().to_vector() == std::vector<float>{5, 2});
  backward(sum(y * 3.0f));
  CHECK(x.take_gradient().to_vector() == std::vector<float>{0, 3, 0, 3, 0, 0});
  backward(max(x));
  CHECK(x.take_gradient().to_vector() == std::vector<float>{0, 1, 0, 0, 0, 0});
}

TEST_CASE("softmax and log_softmax along each axis") {
  for (const bool logarithm : {false, true})
    for (const Shape& shape : {Shape{1}, Shape{7}, Shape{3, 1}, Shape{2, 3, 5}, Shape{3, 65}, Shape{20, 3}})
      for (int64_t axis = 0; axis < static_cast<int64_t>(shape.size()); ++axis) {
        CAPTURE(to_string(shape));
        CAPTURE(axis);
        check_gradient({{"x", shape, true, 2}}, [=](Context&, const Variables& in) -> Variables {
          const Variable y = logarithm ? log_softmax(in[0], axis) : softmax(in[0], axis);
          return {y, y * 2.0f};  // dy is seen by one reader, and by two
        });
      }
}

TEST_CASE("reshape, transpose, permute, slice, concat") {
  check_gradient({{"x", {2, 3, 4}}}, [](Context&, const Variables& in) -> Variables {
    return {reshape(in[0], {4, 6}), reshape(in[0], {-1, 2}) * 2.0f, reshape(in[0], {24})};
  });
  check_gradient({{"x", {2, 3, 4}}}, [](Context&, const Variables& in) -> Variables {
    return {transpose(in[0], 0, 2), transpose(in[0], -1, 1), transpose(in[0], 1, 1), permute(in[0], {1, 2, 0}),
            permute(in[0], {-1, 0, 1}) * 2.0f};
  });
  check_gradient({{"x", {2, 5, 3}}}, [](Context&, const Variables& in) -> Variables {
    return {slice(in[0], 1, 1, 3), slice(in[0], 0, 1, 2), slice(in[0], -1, -2, 3) * 2.0f, slice(in[0], 1, 0, 5)};
  });
  for (int64_t axis : {0, 1, 2}) {
    Shape middle = {2, 3, 4};
    middle[static_cast<size_t>(axis)] = 1;
    check_gradient({{"a", {2, 3, 4}}, {"b", middle}, {"c", {2, 3, 4}, false}},
                   [&](Context&, const Variables& in) -> Variables {
                     return {concat({in[0], in[1], in[2], in[0]}, axis), concat({in[0]}, axis - 3) * 2.0f};
                   });
  }
  Context context(make_cpu_backend());
  const Variable x(Tensor::from(context, std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}));
  CHECK(transpose(x, 0, 1).value().to_vector() == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK(slice(x, 1, -2, 3).value().to_vector() == std::vector<float>{2, 3, 5, 6});
  CHECK(slice(x, 1, 2, 2).value().shape() == Shape{2, 0});
  CHECK(concat({x, slice(x, 1, 0, 1)}, 1).value().to_vector() == std::vector<float>{1, 2, 3, 1, 4, 5, 6, 4});
  CHECK(reshape(x, {3, -1}).value().storage() == x.value().storage());  // a view
}

TEST_CASE("matmul: transposed operands, and batches that broadcast") {
  struct Case {
    Shape a, b;  // the batches
    int64_t M, K, N;
  };
  for (const Case& c : {Case{{}, {}, 3, 5, 2}, Case{{4}, {4}, 3, 5, 2}, Case{{2, 3}, {2, 3}, 1, 7, 1},
                        Case{{2, 3}, {}, 5, 3, 2}, Case{{2, 3}, {1, 1}, 5, 3, 2}, Case{{}, {3}, 2, 3, 5},
                        Case{{1}, {3}, 17, 2, 3}, Case{{2, 1}, {3}, 2, 3, 4}, Case{{2, 3}, {2, 1}, 2, 3, 4}})
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true})
        for (const int trained : {1, 2, 3}) {
          CAPTURE(to_string(c.a));
          CAPTURE(to_string(c.b));
          CAPTURE(trans_a);
          CAPTURE(trans_b);
          Shape a = c.a, b = c.b;
          a.insert(a.end(), {trans_a ? c.K : c.M, trans_a ? c.M : c.K});
          b.insert(b.end(), {trans_b ? c.N : c.K, trans_b ? c.K : c.N});
          check_gradient(
              {{"a", a, (trained & 1) != 0}, {"b", b, (trained & 2) != 0}},
              [=](Context&, const Variables& in) -> Variables { return {matmul(in[0], in[1], trans_a, trans_b)}; });
        }
}

TEST_CASE("a parameter with lent gradient memory, as any operand, twice") {
  Context context(make_cpu_backend({.poison = true}));
  const auto loss = [&](const Variable& w, const Variable& bias, const Variable& x) {
    const Variable h = tanh(matmul(x, w, false, true) + bias);  // (3,4)
    return sum(mul(h, bias) / exp(slice(bias, 0, 0, 1))) + mean(reshape(w, {-1}) * 0.5f) + max(matmul(h, w));
  };
  Variable w = leaf(context, {4, 5}, 1), bias = leaf(context, {4}, 2), x = leaf(context, {3, 5}, 3, false);
  backward(loss(w, bias, x));
  const std::vector<float> dw = w.take_gradient().to_vector(), db = bias.take_gradient().to_vector();

  // The same gradients in a part of a larger buffer, from which nothing else is touched; a second pass adds.
  const Tensor buffer = Tensor::zeros(context, {30}, DType::f32, MemoryCategory::gradient);
  w.lend_gradient(buffer.flat_slice(2, 20).reshape({4, 5}));
  bias.lend_gradient(buffer.flat_slice(23, 4));
  backward(loss(w, bias, x));
  backward(loss(w, bias, x));
  const std::vector<float> lent = buffer.to_vector();
  std::vector<float> expected(30, 0.0f);
  for (size_t i = 0; i < 20; ++i) expected[2 + i] = 2 * dw[i];
  for (size_t i = 0; i < 4; ++i) expected[23 + i] = 2 * db[i];
  CHECK(relative_error(lent, expected) < 1e-6);
  CHECK(lent[0] == 0);
  CHECK(lent[22] == 0);
  CHECK(lent[29] == 0);
}

TEST_CASE("cross-entropy of logits that somebody else reads in backward") {
  const std::vector<int32_t> targets = {4, 0, -1};
  const auto loss = [&](Context& context, const Variable& logits) {
    return softmax_cross_entropy(logits, Tensor::from(context, targets, {3}));
  };
  check_gradient({{"x", {3, 5}}}, [&](Context& context, const Variables& in) -> Variables {
    return {loss(context, tanh(in[0])), loss(context, reshape(exp(in[0]), {3, 5}))};
  });
  Context context(make_cpu_backend());
  Variable x = leaf(context, {3, 5}, 1);
  const std::vector<float> before = x.value().to_vector();
  backward(loss(context, x));
  CHECK(x.value().to_vector() == before);
  // Logits that nobody else holds make room for their gradient.
  const int64_t V = 1000, bytes = 3 * V * 4;
  Variable features(Tensor::from(context, random_floats(6, 1), {3, 2}), true);
  const Variable head(Tensor::from(context, random_floats(2 * V, 2), {V, 2}));
  const Variable l = loss(context, linear(features, head));
  context.memory().reset_peak();
  const int64_t live = context.memory().live_total();
  backward(l);
  CHECK(context.memory().peak_total() < live + bytes);
}

TEST_CASE("what is saved: sums save nothing, a product what the gradients read") {
  Context context(make_cpu_backend());
  const int64_t bytes = 1000 * 4;
  Variable x(Tensor::zeros(context, {1000}), true), y = x;
  context.memory().reset_peak();
  for (int i = 0; i < 10; ++i) y = x - y;
  CHECK(context.memory().live_total() == 2 * bytes);
  y = Variable();
  const Variable frozen(Tensor::zeros(context, {1000}));
  y = mul(x * 2.0f, frozen);  // saves `frozen`, which lives anyway, not the product before
  CHECK(context.memory().live_total() <= 3 * bytes + 8);
}

TEST_CASE("wrong shapes are errors that print both") {
  Context context(make_cpu_backend());
  const auto v = [&](Shape shape) { return leaf(context, std::move(shape), 1); };
  expect_error([&] { mul(v({3, 4}), v({5})); }, "mul: shapes (3, 4) and (5) do not broadcast");
  expect_error([&] { add(v({3, 4}), v({3})); }, "dimension 1 is 4 and 3; sizes must be equal, or one of them 1");
  expect_error([&] { sub(v({2, 3, 4}), v({3, 3, 4})); }, "dimension 3 is 2 and 3");
  expect_error([&] { div(1.0f, 2.0f); }, "div: two numbers");
  expect_error(
      [&] {
        matmul(v({3, 4}), v({5, 6}));
      },
      "shapes (3, 4) and (5, 6) do not fit: the first has 4 columns, "
      "the second 5 rows");
  expect_error([&] { matmul(v({3, 4}), v({5, 4})); }, "(5, 4)");
  expect_error([&] { matmul(v({3, 4}), v({4, 5}), true, false); }, "(3, 4) (transposed)");
  expect_error([&] { matmul(v({2, 3, 4}), v({3, 4, 5})); }, "(2, 3, 4) and (3, 4, 5)");
  expect_error([&] { matmul(v({4}), v({4, 5})); }, "at least two dimensions");
  expect_error([&] { sum(v({3, 4}), 2); }, "sum: shape (3, 4) has no axis 2");
  expect_error([&] { softmax(v({3, 4}), -3); }, "softmax: shape (3, 4) has no axis -3");
  expect_error([&] { max(v({0})); }, "max: shape (0)");
  expect_error([&] { reshape(v({3, 4}), {5, 2}); }, "reshape: shape (3, 4) has 12 elements, (5, 2) has 10");
  expect_error([&] { reshape(v({3, 4}), {-1, 5}); }, "(-1, 5)");
  expect_error([&] { reshape(v({3, 4}), {-1, -1}); }, "at most one");
  expect_error([&] { transpose(v({3, 4}), 0, 2); }, "transpose: shape (3, 4) has no axis 2");
  expect_error([&] { permute(v({3, 4}), {0, 0}); }, "twice");
  expect_error([&] { permute(v({3, 4}), {1}); }, "every axis");
  expect_error([&] { slice(v({3, 4}), 0, 2, 5); }, "slice: [2, 5) of axis 0 of shape (3, 4), which has 3 steps");
  expect_error([&] { slice(v({3, 4}), 0, 2, 1); }, "slice: [2, 1)");
  expect_error(
      [&] {
        concat({v({3, 4}), v({3, 5})}, 0);
      },
      "concat: shapes (3, 4) and (3, 5) differ in more than axis 0");
  expect_error([&] { concat({v({3, 4}), v({3})}, 0); }, "(3, 4) and (3)");
}

}  // namespace
}  // namespace trencadis::test
