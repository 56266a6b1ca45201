// The tape and its backward pass: how gradients meet, whose memory they lie in, when memory is freed, how deep a graph
// may be.
#include <thread>

#include "autograd/ops/ops.h"
#include "runtime/kernel_test.h"

namespace trencadis::test {
namespace {

using Floats = std::vector<float>;

int64_t live(Context& context, MemoryCategory category) {
  return context.memory().live()[static_cast<size_t>(category)];
}

// Blocks arrive and leave filled with NaN: who reads what he should not, shows it.
struct Fixture {
  Context context{make_cpu_backend({.poison = true})};

  Variable leaf(std::vector<float> values, const char* name = "leaf") {
    const int64_t n = static_cast<int64_t>(values.size());
    return Variable(Tensor::from(context, values, {n}), true, name);
  }
  Tensor tensor(std::vector<float> values) {
    const int64_t n = static_cast<int64_t>(values.size());
    return Tensor::from(context, values, {n});
  }
  Tensor matrix(float value) { return Tensor::from(context, Floats{value}, {1, 1}); }
  // y = factor x. Its backward works in place wherever it may, as those of dropout and bias_gelu do.
  Variable scale(const Variable& x, float factor, std::vector<int>* visits = nullptr, int id = 0) {
    Tensor y = Tensor::empty(context, x.value().shape());
    multiply(y, x.value(), factor);
    return record("scale", {x}, std::move(y), [=, this](Tensors g) -> Tensors {
      if (visits) visits->push_back(id);
      Tensor dx = g[0].storage().use_count() == 1 ? g[0] : Tensor::empty(context, g[0].shape());
      multiply(dx, g[0], factor);
      return {dx};
    });
  }
  static void multiply(const Tensor& y, const Tensor& x, float factor) {
    for (int64_t i = 0; i < x.size(); ++i) y.data<float>()[i] = factor * x.data<float>()[i];
  }
  void backward_from(const Variable& y, std::vector<float> seed) { backward({Edge(y)}, {tensor(std::move(seed))}); }
};

TEST_CASE_FIXTURE(Fixture, "a leaf that is used twice gets the sum") {
  Variable x = leaf({1, 2});
  backward_from(add(scale(x, 2), scale(x, 3)), {1, 10});
  CHECK(x.take_gradient().to_vector() == Floats{5, 50});
}

TEST_CASE_FIXTURE(Fixture, "one op that reads a variable twice") {
  Variable x = leaf({1, 2});
  const Variable y = scale(x, 3);
  backward_from(add(y, y), {1, 10});
  CHECK(x.take_gradient().to_vector() == Floats{6, 60});
  backward_from(add(x, x), {1, 10});
  CHECK(x.take_gradient().to_vector() == Floats{2, 20});
}

TEST_CASE_FIXTURE(Fixture, "a diamond: the node where paths meet runs once, after both, with the sum") {
  std::vector<int> visits;
  Variable x = leaf({1});
  const Variable top = scale(x, 2, &visits, 0);
  const Variable left = scale(top, 3, &visits, 1), right = scale(scale(top, 5, &visits, 2), 7, &visits, 3);
  backward_from(add(left, right), {1});
  CHECK(x.take_gradient().item() == 2 * (3 + 5 * 7));
  CHECK(visits == std::vector<int>{3, 2, 1, 0});
}

TEST_CASE_FIXTURE(Fixture, "two roots, one of them above the other") {
  Variable x = leaf({1});
  const Variable y = scale(x, 2), z = scale(y, 3);
  backward({Edge(y), Edge(z)}, {tensor({100}), tensor({1})});
  CHECK(x.take_gradient().item() == 2 * (100 + 3));
  const Variable unused = scale(x, 2), used = scale(x, 3);
  backward({Edge(unused), Edge(used)}, {Tensor(), tensor({1})});  // no gradient for one root
  CHECK(x.take_gradient().item() == 3);
}

TEST_CASE_FIXTURE(Fixture, "a residual addition hands one gradient to two inputs; working in place must not mix them") {
  SUBCASE("the branch works in place") {
    Variable x = leaf({1, 2});
    backward_from(add(x, scale(scale(x, 2), 3)), {1, 10});
    CHECK(x.take_gradient().to_vector() == Floats{7, 70});
  }
  SUBCASE("both inputs are ops that work in place") {
    Variable x = leaf({1, 2}), y = leaf({3, 4});
    backward_from(add(scale(x, 2), scale(y, 3)), {1, 10});
    CHECK(x.take_gradient().to_vector() == Floats{2, 20});
    CHECK(y.take_gradient().to_vector() == Floats{3, 30});
  }
  SUBCASE("the ops of a model that work in place: dropout and bias_gelu") {
    Variable x(Tensor::from(context, random_floats(12, 1), {3, 4}), true);
    Variable bias(Tensor::zeros(context, {4}), true);
    const auto gradient = [&](const Variable& y) {
      backward({Edge(y)}, {Tensor::from(context, random_floats(12, 2), {3, 4})});
      return x.take_gradient().to_vector();
    };
    const DropoutMask mask = {.probability = 0.5f};
    for (const bool gelu : {false, true}) {
      CAPTURE(gelu);
      const auto branch = [&] { return gelu ? bias_gelu(x, bias) : dropout(x, mask); };
      Floats expected = gradient(branch());
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += random_floats(12, 2)[i];
      CHECK(gradient(add(x, branch())) == expected);
    }
  }
  SUBCASE("two leaves: each can be added to afterwards") {
    Variable x = leaf({1}), y = leaf({2});
    backward_from(add(x, y), {1});
    backward_from(scale(x, 10), {1});
    CHECK(x.take_gradient().item() == 11);
    CHECK(y.take_gradient().item() == 1);
  }
  SUBCASE("a parameter that ops write to directly, and the branch beside it") {
    // Visited in this order: the addition delivers g to the bias and to `scale`, which waits; then linear's backward
    // adds to the bias's gradient, which `scale` must not see.
    Variable x = leaf({1}), bias = leaf({1}), weight(matrix(1.0f), true);
    const Variable branch = scale(x, 3);
    const Variable in(matrix(1.0f));
    const Variable z = linear(in, weight, bias);
    const Variable y = add(bias, branch);
    backward({Edge(y), Edge(z)}, {tensor({1}), matrix(5.0f)});
    CHECK(bias.take_gradient().item() == 6);
    CHECK(x.take_gradient().item() == 3);
  }
}

TEST_CASE_FIXTURE(Fixture, "lent gradient memory is written in place, and a second use adds to it") {
  SUBCASE("by an op that writes its parameters' gradients") {
    Variable weight(matrix(2.0f), true, "w");
    const Tensor memory = Tensor::empty(context, {1, 1}, DType::f32, MemoryCategory::gradient);
    weight.lend_gradient(memory);
    CHECK_FALSE(weight.gradient_written());
    const Variable in(matrix(3.0f));
    const int64_t before = live(context, MemoryCategory::gradient);
    backward(linear(linear(in, weight), weight));  // 3 w^2
    CHECK(live(context, MemoryCategory::gradient) == before);
    CHECK(memory.item() == 12);
    CHECK(weight.gradient_written());
  }
  SUBCASE("by an edge") {
    Variable x = leaf({1, 2});
    const Tensor memory = Tensor::empty(context, {2});
    x.lend_gradient(memory);
    backward_from(add(scale(x, 2), scale(x, 3)), {1, 10});
    CHECK(memory.to_vector() == Floats{5, 50});
    backward_from(scale(x, 1), {1, 1});
    CHECK(memory.to_vector() == Floats{6, 51});
    CHECK(x.take_gradient().data<float>() == memory.data<float>());
  }
  SUBCASE("a part of a larger buffer, as a unit lends it; the rest stays untouched") {
    const Tensor buffer = Tensor::zeros(context, {5});
    Variable x = leaf({1, 2});
    x.lend_gradient(buffer.flat_slice(2, 2));
    backward_from(scale(x, 2), {1, 10});
    CHECK(buffer.to_vector() == Floats{0, 0, 2, 20, 0});
  }
  SUBCASE("of another shape: an error") {
    Variable x = leaf({1, 2}, "h.0.ln_1.bias");
    expect_error([&] { x.lend_gradient(tensor({1, 2, 3})); }, "h.0.ln_1.bias");
  }
}

TEST_CASE_FIXTURE(Fixture, "take_gradient gives what was written, once; what was lent but not written is no gradient") {
  Variable x = leaf({1});
  CHECK_FALSE(x.take_gradient().defined());
  x.lend_gradient(tensor({7}));
  CHECK_FALSE(x.take_gradient().defined());
  backward_from(scale(x, 2), {1});
  CHECK(x.take_gradient().item() == 2);
  CHECK_FALSE(x.take_gradient().defined());
  backward_from(scale(x, 2), {1});  // starts afresh
  CHECK(x.take_gradient().item() == 2);
}

TEST_CASE_FIXTURE(Fixture, "nothing is recorded under NoGrad, nor where nothing needs a gradient") {
  Variable x = leaf({1});
  {
    const NoGrad no_grad;
    CHECK_FALSE(grad_enabled());
    const Variable y = scale(x, 2);
    CHECK_FALSE(y.requires_grad());
    const GradMode mode(true);  // nested, the innermost counts
    CHECK(scale(x, 2).requires_grad());
  }
  CHECK(grad_enabled());
  CHECK_FALSE(scale(Variable(tensor({1})), 2).requires_grad());
  bool other_thread = false;
  const NoGrad no_grad;
  std::thread([&] { other_thread = grad_enabled(); }).join();
  CHECK(other_thread);  // the mode belongs to a thread
}

TEST_CASE_FIXTURE(Fixture, "wrong starts of backward are errors") {
  Variable x = leaf({1, 2});
  expect_error([&] { backward(scale(x, 2)); }, "needs a scalar, this has shape (2)");
  expect_error([&] { backward(Variable(tensor({1}))); }, "NoGrad");
  expect_error([&] { backward({Edge(x)}, {}); }, "1 roots and 0 seeds");
  const Variable y = scale(leaf({1}), 2);
  backward(y);
  expect_error([&] { backward(y); }, "scale a second time");
  // Also where only a part of the graph was used before.
  const Variable trunk = scale(x, 2), left = scale(trunk, 3), right = scale(trunk, 5);
  backward_from(left, {1, 1});
  expect_error([&] { backward_from(right, {1, 1}); }, "run forward again");
  expect_error([&] { Variable(y).gradient_target(); }, "not a leaf");
}

TEST_CASE_FIXTURE(Fixture, "saved tensors are freed as backward passes them") {
  // A chain of ops that each save their input and whose backward takes a fresh tensor: n saved tensors at the end of
  // forward, and in backward one fewer with each visit, so that the peak is what forward left plus two gradients.
  const int64_t n = 10, bytes = 1000 * 4;
  Variable x(Tensor::zeros(context, {1000}), true), y = x;
  for (int64_t i = 0; i < n; ++i) {
    Tensor out = Tensor::zeros(context, {1000});
    y = record("save", {y}, std::move(out),
               [saved = y.value(), this](Tensors) -> Tensors { return {Tensor::zeros(context, saved.shape())}; });
  }
  const Tensor seed = Tensor::zeros(context, {1000});
  const auto before = context.memory().live_total();
  CHECK(before == (n + 2) * bytes);  // x, n outputs of which the last is y itself, the seed
  context.memory().reset_peak();
  std::vector<Edge> roots = {Edge(y)};
  y = Variable();  // the last output is saved by nobody
  backward(roots, {seed});
  CHECK(context.memory().peak_total() == before);
  CHECK(context.memory().live_total() == 3 * bytes);  // x, its gradient, the seed
}

TEST_CASE_FIXTURE(Fixture, "intermediates that no op saves live no longer than their variables") {
  const int64_t bytes = 1000 * 4;
  Variable x(Tensor::zeros(context, {1000}), true);
  context.memory().reset_peak();
  Variable y = x;
  for (int i = 0; i < 20; ++i) y = add(y, x);  // add saves nothing
  CHECK(context.memory().peak_total() == 3 * bytes);
  CHECK(context.memory().live_total() == 2 * bytes);
}

TEST_CASE_FIXTURE(Fixture, "depth does not overflow the stack") {
  constexpr int kDepth = 200000;
  Variable x = leaf({1}), y = x;
  SUBCASE("backward through a chain") {
    for (int i = 0; i < kDepth; ++i) y = add(y, x);
    backward(y);
    CHECK(x.take_gradient().item() == kDepth + 1);
  }
  SUBCASE("destruction of a chain without backward") {
    for (int i = 0; i < kDepth; ++i) y = scale(y, 1);
  }
  SUBCASE("destruction where each node is read twice by the next") {
    for (int i = 0; i < kDepth; ++i) y = add(y, y);
  }
  SUBCASE("destruction where each node is read by the next two") {
    Variable previous = x;
    for (int i = 0; i < kDepth; ++i) previous = std::exchange(y, add(y, previous));
  }
  y = Variable();
  x = Variable();
  CHECK(context.memory().live_total() == 0);
}

TEST_CASE_FIXTURE(Fixture, "sums of gradients have one order: that of the program") {
  // Floats do not associate: large, -large and small numbers give other sums in other orders. Backward visits later
  // nodes first, so gradients meet in reverse order of the uses, wherever the nodes happen to lie in memory.
  const std::vector<float> factors = {1e8f, 1, -1e8f, 3, 1e-3f, -7e7f, 0.1f, 7e7f};
  float expected = factors.back();
  for (size_t i = factors.size() - 1; i-- > 0;) expected += factors[i];
  for (int attempt = 0; attempt < 5; ++attempt) {
    Variable x = leaf({1});
    std::vector<Tensor> elsewhere;  // another layout of memory each time
    std::vector<Edge> roots;
    Tensors seeds;
    for (size_t i = 0; i < factors.size(); ++i) {
      roots.insert(roots.begin() + (attempt % 2 ? static_cast<std::ptrdiff_t>(i / 2) : 0), Edge(scale(x, factors[i])));
      seeds.push_back(tensor({1}));
      elsewhere.push_back(Tensor::empty(context, {static_cast<int64_t>((i + 1) * 16 * (attempt + 1))}));
    }
    backward(roots, std::move(seeds));
    CHECK(x.take_gradient().item() == expected);
  }
}

}  // namespace
}  // namespace trencadis::test
