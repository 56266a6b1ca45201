// AdamW and SGD against naive loops in double and closed forms; decay by logical shape; slices equal to the whole.
#include "optim/optimizer.h"
#include "runtime/kernel_test.h"

namespace trencadis::test {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

// One parameter with its states in a context, stepped whole or in slices.
struct Stepped {
  Context& context;
  const Optimizer& optimizer;
  Shape shape;
  Tensor param, gradient;
  std::array<Tensor, kMaxOptimizerStates> states;

  Stepped(Context& c, const Optimizer& o, Shape logical, const Floats& start)
      : context(c), optimizer(o), shape(std::move(logical)) {
    const int64_t n = element_count(shape);
    param = Tensor::from(context, start, {n});
    gradient = Tensor::empty(context, {n});
    for (int i = 0; i < optimizer.state_count(); ++i) states[static_cast<size_t>(i)] = Tensor::zeros(context, {n});
  }

  ParamSlice slice(int64_t first, int64_t count) const {
    ParamSlice s;
    s.param = s.master = param.view().slice(first, count);
    s.gradient = gradient.view().slice(first, count);
    for (size_t i = 0; i < states.size(); ++i)
      if (states[i].defined()) s.states[i] = states[i].view().slice(first, count);
    s.logical_shape = shape;
    s.first = first;
    return s;
  }

  // Cut at the ascending elements `cuts`.
  void step(const Floats& g, const StepInfo& info, const std::vector<int64_t>& cuts = {}) {
    context.copy_from_host(gradient, g.data());
    std::vector<ParamSlice> slices;
    int64_t first = 0;
    for (const int64_t cut : cuts) slices.push_back(slice(first, cut - first)), first = cut;
    slices.push_back(slice(first, param.size() - first));
    optimizer.step(slices, info, context.kernels());
  }

  // Parameter and states, as one row of numbers.
  Floats all() const {
    Floats out = param.to_vector();
    for (const Tensor& state : states)
      if (state.defined())
        for (const float x : state.to_vector()) out.push_back(x);
    return out;
  }
};

struct NaiveAdamW {
  AdamWOptions options;
  double decay;
  Doubles p, m = Doubles(p.size()), v = Doubles(p.size());

  void step(const Floats& gradient, const StepInfo& info) {
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = static_cast<double>(gradient[i]) * info.grad_scale, b1 = options.beta1, b2 = options.beta2;
      m[i] = b1 * m[i] + (1 - b1) * g;
      v[i] = b2 * v[i] + (1 - b2) * g * g;
      const double mean = m[i] / (1 - std::pow(b1, info.t)), square = v[i] / (1 - std::pow(b2, info.t));
      p[i] -= info.lr * decay * p[i] + info.lr * mean / (std::sqrt(square) + options.eps);
    }
  }
};

TEST_CASE("AdamW follows its formula in double over several steps") {
  Context context(make_cpu_backend({.poison = true}));
  const AdamWOptions options = {.beta1 = 0.8f, .beta2 = 0.9f, .eps = 1e-6f, .weight_decay = 0.2f};
  const auto adamw = make_adamw(options);
  for (const Shape& shape : {Shape{1}, Shape{37}, Shape{5, 13}, Shape{1, 1}}) {
    CAPTURE(to_string(shape));
    const int64_t n = element_count(shape);
    const Floats start = random_floats(n, 1);
    Stepped stepped(context, *adamw, shape, start);
    NaiveAdamW naive{options, shape.size() >= 2 ? options.weight_decay : 0.0, Doubles(start.begin(), start.end())};
    for (int64_t t = 1; t <= 10; ++t) {
      const Floats g = random_floats(n, 100 + static_cast<uint64_t>(t), 3);
      const StepInfo info = {.lr = 0.01f * static_cast<float>(t), .t = t, .grad_scale = 0.25f};
      stepped.step(g, info);
      naive.step(g, info);
    }
    // A step rounds p (below 2) a few times: 10 steps of 4 roundings of 2^-24 * 2, and states likewise.
    CHECK(max_error(stepped.param.to_vector(), naive.p) < 10 * 4 * 2 * 0x1p-24);
    CHECK(relative_error(stepped.states[0].to_vector(), naive.m) < 1e-6);
    CHECK(relative_error(stepped.states[1].to_vector(), naive.v) < 1e-6);
  }
}

TEST_CASE("AdamW under a constant gradient moves by lr each step, whatever the gradient's size") {
  Context context(make_cpu_backend());
  const auto adamw = make_adamw({.weight_decay = 0.1f});
  Stepped stepped(context, *adamw, {4}, {1, 1, 1, 1});
  const Floats g = {1e-3f, -1, 1e4f, 0};
  for (int64_t t = 1; t <= 5; ++t) stepped.step(g, {.lr = 0.01f, .t = t});
  // The moments are biased exactly as the corrections say; eps = 1e-8 takes 1e-5 of the step of the smallest gradient.
  CHECK(max_error(stepped.param.to_vector(), Doubles{0.95, 1.05, 0.95, 1}) < 2e-6);
  CHECK(stepped.param.to_vector()[3] == 1);
}

TEST_CASE("only matrices decay, by the shape of the whole parameter, however its slices look") {
  Context context(make_cpu_backend());
  const Floats start = random_floats(12, 1), zero(12, 0.0f);
  for (const auto& optimizer : {make_adamw({.weight_decay = 0.5f}), make_sgd({.momentum = 0, .weight_decay = 0.5f})})
    for (const Shape& shape : {Shape{12}, Shape{3, 4}, Shape{1, 12}, Shape{12, 1}, Shape{2, 2, 3}}) {
      CAPTURE(to_string(shape));
      Stepped stepped(context, *optimizer, shape, start);
      for (int64_t t = 1; t <= 3; ++t) stepped.step(zero, {.lr = 0.1f, .t = t}, {1, 5});
      Doubles expected(start.begin(), start.end());
      if (shape.size() >= 2)
        for (double& x : expected) x *= std::pow(1 - 0.1f * 0.5f, 3);
      CHECK(max_error(stepped.param.to_vector(), expected) <= (shape.size() >= 2 ? 1e-6 : 0));
    }
}

TEST_CASE("slices give the bits of the whole, wherever the cuts are") {
  const int64_t n = 40000;  // more than one chunk of the kernels
  const std::vector<std::vector<int64_t>> cut_lists = {
      {}, {1}, {n - 1}, {0, 0, 7}, {3, 4, 5, 8, 9, 17}, {n / 2}, {13331, 26662}, {16384, 16385, n}};
  for (const auto& optimizer : {make_adamw({}), make_sgd({}), make_sgd({.momentum = 0, .weight_decay = 0.1f})}) {
    Floats whole;
    for (const auto& cuts : cut_lists)
      for (const int misalign : {0, 4, 36}) {
        Context context(make_cpu_backend({.threads = 2, .misalign = misalign}));
        Stepped stepped(context, *optimizer, {200, 200}, random_floats(n, 1));
        for (int64_t t = 1; t <= 3; ++t)
          stepped.step(random_floats(n, 10 + static_cast<uint64_t>(t)), {.lr = 0.1f, .t = t, .grad_scale = 0.3f}, cuts);
        if (whole.empty()) whole = stepped.all();
        CHECK(stepped.all() == whole);
      }
  }
}

TEST_CASE("SGD with momentum follows its formula in double") {
  Context context(make_cpu_backend({.poison = true}));
  for (const float momentum : {0.0f, 0.9f}) {
    CAPTURE(momentum);
    const auto sgd = make_sgd({.momentum = momentum, .weight_decay = 0.1f});
    CHECK(sgd->state_count() == (momentum != 0 ? 1 : 0));
    const Floats start = random_floats(35, 1);
    Stepped stepped(context, *sgd, {5, 7}, start);
    // PyTorch's momentum starts with the first gradient: what the state holds before is not read.
    if (momentum != 0) stepped.states[0] = Tensor::empty(context, {35});
    Doubles p(start.begin(), start.end()), u(35);
    for (int64_t t = 1; t <= 6; ++t) {
      const Floats g = random_floats(35, 50 + static_cast<uint64_t>(t));
      stepped.step(g, {.lr = 0.05f, .t = t, .grad_scale = 0.5f});
      for (size_t i = 0; i < p.size(); ++i) {
        u[i] = momentum * u[i] + 0.5 * g[i] + static_cast<double>(0.1f) * p[i];
        p[i] -= static_cast<double>(0.05f) * u[i];
      }
    }
    CHECK(max_error(stepped.param.to_vector(), p) < 6 * 4 * 2 * 0x1p-24);
  }
}

TEST_CASE("an f32 master behind bf16 parameters keeps what bf16 would round away") {
  Context context(make_cpu_backend());
  for (const auto& optimizer : {make_adamw({}), make_sgd({})}) {
    const int64_t n = 21;
    Stepped reference(context, *optimizer, {n}, random_floats(n, 1)),
        mixed(context, *optimizer, {n}, random_floats(n, 1));
    const Tensor image = Tensor::empty(context, {n}, DType::bf16);
    for (int64_t t = 1; t <= 5; ++t) {
      const Floats g = random_floats(n, 20 + static_cast<uint64_t>(t));
      const StepInfo info = {.lr = 1e-4f, .t = t};  // far below bf16's resolution
      reference.step(g, info);
      context.copy_from_host(mixed.gradient, g.data());
      ParamSlice slice = mixed.slice(0, n);
      slice.param = image.view();
      optimizer->step(std::span(&slice, 1), info, context.kernels());
    }
    CHECK(mixed.all() == reference.all());
    Floats rounded = reference.param.to_vector();
    for (float& x : rounded) x = static_cast<float>(bf16(x));
    CHECK(image.to_vector() == rounded);
  }
}

TEST_CASE("an optimizer that was built, and one that steps others, leaves parameters alone") {
  Context context(make_cpu_backend());
  for (const auto& optimizer : {make_adamw({}), make_sgd({.weight_decay = 0.1f})}) {
    Stepped frozen(context, *optimizer, {3, 3}, random_floats(9, 1)),
        other(context, *optimizer, {2, 2}, random_floats(4, 2));
    const Floats before = frozen.all();
    optimizer->step({}, {.lr = 1, .t = 1}, context.kernels());
    other.step(random_floats(4, 3), {.lr = 1, .t = 1});
    CHECK(frozen.all() == before);
    CHECK(other.param.to_vector() != random_floats(4, 2));
  }
}

TEST_CASE("states are named as PyTorch names them") {
  const auto adamw = make_adamw({});
  CHECK(adamw->state_count() == 2);
  CHECK(adamw->state_name(0) == "exp_avg");
  CHECK(adamw->state_name(1) == "exp_avg_sq");
  CHECK(make_sgd({})->state_count() == 1);
}

}  // namespace
}  // namespace trencadis::test
