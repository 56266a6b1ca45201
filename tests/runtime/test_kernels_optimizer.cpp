// adamw and sgd against their formulas in double, over several steps.
#include "runtime/kernel_test.h"
#include "runtime/kernels.h"

namespace trencadis {
namespace {

using Floats = std::vector<float>;

struct AdamState {
  Floats p, m, v;
};

// One step in every context; with `param` in its own memory when separate, else aliasing the master.
AdamState adamw(const AdamState& s, const Floats& grad, const AdamWStep& step, bool separate) {
  const auto n = static_cast<int64_t>(s.p.size());
  const auto out = test::same_bits([&](test::Buffers& b) {
    View master = b.inout(s.p), m = b.inout(s.m), v = b.inout(s.v);
    View param = separate ? b.out(n) : master;
    b.kernels().adamw(param, master, m, v, b.in(grad), step);
  });
  if (separate) CHECK(out.get(3) == out.get(0));
  return {out.get(0), out.get(1), out.get(2)};
}

TEST_CASE("adamw: follows Loshchilov and Hutter's formula over several steps") {
  for (int64_t n : {1, 15, 16, 17, 100, 50001}) {
    const auto size = static_cast<size_t>(n);
    AdamState s{test::random_floats(n, 1), Floats(size, 0.0f), Floats(size, 0.0f)};
    std::vector<double> p(s.p.begin(), s.p.end()), m(size, 0.0), v(size, 0.0);
    AdamWStep step{.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .grad_scale = 0.25f};
    const double lr = step.lr, b1 = step.beta1, b2 = step.beta2, eps = step.eps, wd = step.weight_decay;
    for (step.t = 1; step.t <= (n > 1000 ? 2 : 6); ++step.t) {
      const auto grad = test::random_floats(n, 10 + static_cast<uint64_t>(step.t), 3);
      s = adamw(s, grad, step, step.t % 2 == 0);
      const double t = static_cast<double>(step.t);
      for (size_t i = 0; i < size; ++i) {
        const double g = static_cast<double>(grad[i]) * 0.25;
        p[i] -= lr * wd * p[i];
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        p[i] -= lr * (m[i] / (1 - std::pow(b1, t))) / (std::sqrt(v[i] / (1 - std::pow(b2, t))) + eps);
      }
      // A step moves p (below 1) by about lr: each adds an ulp of p or two, 1.2e-7. m and v: a few ulp of 0.75.
      CHECK(test::max_error(s.p, p) < 2.5e-7 * t);
      CHECK(test::max_error(s.m, m) < 2e-7);
      CHECK(test::max_error(s.v, v) < 2e-7);
    }
  }
}

TEST_CASE("adamw: the first step moves every parameter by lr against its gradient") {
  const Floats grad = {1e-6f, -1e-3f, 1, -1e6f};
  const auto s = adamw({Floats(4, 0.0f), Floats(4, 0.0f), Floats(4, 0.0f)}, grad, {.lr = 0.5f, .eps = 0}, false);
  for (size_t i = 0; i < 4; ++i) CHECK(s.p[i] == doctest::Approx(grad[i] > 0 ? -0.5 : 0.5).epsilon(1e-6));
}

TEST_CASE("adamw: a gradient of 0 decays the parameter and nothing else") {
  const auto s = adamw({{1, -2}, {0, 0}, {0, 0}}, {0, 0}, {.lr = 0.5f, .weight_decay = 0.5f}, false);
  CHECK(s.p == Floats{0.75f, -1.5f});
  CHECK(s.m == Floats{0, 0});
}

TEST_CASE("adamw: an element does not depend on its place in the range") {
  const Floats p = test::random_floats(40, 1), m = test::random_floats(40, 2), g = test::random_floats(40, 3);
  const Floats v(40, 0.3f);
  const AdamWStep step{.lr = 0.1f, .t = 5};
  const auto whole = adamw({p, m, v}, g, step, false);
  for (size_t cut : {1u, 7u, 16u, 39u}) {
    const auto c = static_cast<long>(cut);
    const auto rest = adamw({{p.begin() + c, p.end()}, {m.begin() + c, m.end()}, {v.begin() + c, v.end()}},
                            {g.begin() + c, g.end()}, step, false);
    CHECK(rest.p == Floats(whole.p.begin() + c, whole.p.end()));
  }
}

TEST_CASE("adamw: a bf16 parameter is the rounded master") {
  const int64_t n = 37;
  const Floats p = test::random_floats(n, 1), zero(n, 0.0f), g = test::random_floats(n, 2);
  const auto out = test::same_bits([&](test::Buffers& b) {
    View param = b.out<bf16>(n), master = b.inout(p), m = b.inout(zero), v = b.inout(zero);
    b.kernels().adamw(param, master, m, v, b.in(g), {.lr = 0.1f});
  });
  const auto param = out.get<bf16>(0);
  const auto master = out.get(1);
  CHECK(master == adamw({p, zero, zero}, g, {.lr = 0.1f}, false).p);
  for (size_t i = 0; i < param.size(); ++i) CHECK(param[i].bits == bf16(master[i]).bits);
}

TEST_CASE("adamw: NaN gradients reach the parameter (the engine decides what to do)") {
  const auto s = adamw({{1, 1}, {0, 0}, {0, 0}}, {std::numeric_limits<float>::quiet_NaN(), 1}, {.lr = 0.1f}, false);
  CHECK(std::isnan(s.p[0]));
  CHECK(std::isfinite(s.p[1]));
}

TEST_CASE("sgd: with and without momentum, over several steps") {
  for (float momentum : {0.0f, 0.9f}) {
    for (int64_t n : {1, 16, 33, 40001}) {
      const auto size = static_cast<size_t>(n);
      Floats p = test::random_floats(n, 1);
      // Poison: the first step must not read u.
      Floats u(size, std::numeric_limits<float>::quiet_NaN());
      std::vector<double> want_p(p.begin(), p.end()), want_u(size, 0.0);
      SgdStep step{.lr = 0.1f, .momentum = momentum, .weight_decay = 0.01f, .grad_scale = 0.5f};
      for (step.t = 1; step.t <= 3; ++step.t) {
        const auto grad = test::random_floats(n, 20 + static_cast<uint64_t>(step.t));
        const auto out = test::same_bits([&](test::Buffers& b) {
          View master = b.inout(p), velocity = momentum > 0 ? b.inout(u) : View();
          b.kernels().sgd(master, master, velocity, b.in(grad), step);
        });
        p = out.get(0);
        if (momentum > 0) u = out.get(1);
        for (size_t i = 0; i < size; ++i) {
          const double g = static_cast<double>(grad[i]) * 0.5 + static_cast<double>(step.weight_decay) * want_p[i];
          want_u[i] = step.t == 1 ? g : static_cast<double>(momentum) * want_u[i] + g;
          want_p[i] -= static_cast<double>(step.lr) * want_u[i];
        }
        // p and u stay below 2: two or three roundings of 1.2e-7 a step.
        CHECK(test::max_error(p, want_p) < 4e-7 * static_cast<double>(step.t));
        if (momentum > 0) CHECK(test::max_error(u, want_u) < 6e-7);
      }
    }
  }
}

TEST_CASE("optimizer kernels refuse short states and impossible steps") {
  Context context(make_cpu_backend());
  test::Buffers b(context);
  View p = b.out(8), m = b.out(8), v = b.out(7);
  test::expect_error([&] { context.kernels().adamw(p, p, m, v, m, {}); }, "adamw: v has 7 elements, 8 are needed");
  test::expect_error([&] { context.kernels().adamw(p, p, m, m, m, {.t = 0}); }, "step number 0");
  test::expect_error([&] { context.kernels().adamw(b.out<int32_t>(8), p, m, m, m, {}); }, "param is i32");
  test::expect_error([&] { context.kernels().sgd(p, p, View(), m, {.momentum = 0.5f}); }, "sgd: u");
}

}  // namespace
}  // namespace trencadis
