// The gradient checker: what an op's backward says against central finite differences of its forward.
//
// The outputs y are projected on one number by random weights, L = sum_i w_i y_i (in double), so that one backward pass
// with the seeds w gives dL/dx for every x. Element by element, that is compared with
//   D(h) = (L(x+h) - L(x-h)) / 2h,   extrapolated from two steps (Richardson): R = (4 D(h/2) - D(h)) / 3.
// Where the tolerance comes from, with u = 2^-24, the rounding unit of f32, and inputs of size 1:
//   truncation  D(h/2) is off by h^2 L'''/24, which R - D(h/2) measures. R itself is off by O(h^4): |R - D(h/2)| covers
//   it. noise       f32 rounds each y_i: a few u max(1, |y_i|), with independent signs, so L carries
//               delta = 4 u sqrt(sum_i (w_i max(1, |y_i|))^2), and R less than 2 delta / h of it (weights 4/3 and 1/3).
// h = 2^-5 balances them: noise 1.5e-5 sqrt(outputs), where rounding alone at h = 1e-4 would be 0.5 %. So that a wide
// tolerance cannot hide a wrong gradient, it must itself stay below 2 % of the tensor's largest gradient.
//
// Checked besides: frozen inputs get no gradient; a second backward pass adds to what the first wrote.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/ops/ops.h"
#include "runtime/kernel_test.h"

namespace trencadis::test {

// One input of the checked function: uniform in offset +- scale.
struct GradientInput {
  std::string name;
  Shape shape;
  bool requires_grad = true;
  float scale = 1, offset = 0;
};

// Computes outputs from the inputs, given in the order of the list; must be the same function on every call.
using CheckedFunction = std::function<std::vector<Variable>(Context&, const std::vector<Variable>&)>;

class GradientCheck {
 public:
  GradientCheck(std::vector<GradientInput> inputs, CheckedFunction function, uint64_t seed = 1)
      : inputs_(std::move(inputs)), function_(std::move(function)), seed_(seed) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      values_.push_back(random_floats(element_count(inputs_[i].shape), random_key(seed_, i), inputs_[i].scale));
      for (float& x : values_.back()) x += inputs_[i].offset;
    }
  }

  void run() {
    analytic_gradients();
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].requires_grad) compare(i);
  }

 private:
  static constexpr double kStep = 1.0 / 32, kRoundingUnit = 1.0 / (1 << 24);
  static constexpr int64_t kSamples = 32;  // elements of a tensor that are perturbed; smaller tensors: all

  std::vector<Variable> leaves() {
    std::vector<Variable> variables;
    for (size_t i = 0; i < inputs_.size(); ++i)
      variables.emplace_back(Tensor::from(context_, values_[i], inputs_[i].shape), inputs_[i].requires_grad,
                             inputs_[i].name);
    return variables;
  }

  // w for output k: +-[0.5, 1), so that none is negligible.
  std::vector<float> weights(size_t k, int64_t n) const {
    std::vector<float> w = random_floats(n, random_key(seed_, 1000 + k));
    for (float& x : w) x = (x < 0 ? -0.5f : 0.5f) + 0.5f * x;
    return w;
  }

  void backward_once(const std::vector<Variable>& variables) {
    std::vector<Edge> roots;
    Tensors seeds;
    for (const Variable& output : function_(context_, variables)) {
      roots.emplace_back(output);
      seeds.push_back(Tensor::from(context_, weights(seeds.size(), output.value().size()), output.value().shape()));
    }
    backward(roots, std::move(seeds));
  }

  void analytic_gradients() {
    std::vector<Variable> variables = leaves();
    backward_once(variables);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      INFO("input ", inputs_[i].name);
      REQUIRE(variables[i].gradient_written() == inputs_[i].requires_grad);
      analytic_.push_back(inputs_[i].requires_grad ? variables[i].gradient().to_vector() : std::vector<float>());
      // An op may overwrite what it reads: the second pass starts from the same values again.
      variables[i].bind(Tensor::from(context_, values_[i], inputs_[i].shape));
    }
    backward_once(variables);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].requires_grad) continue;
      INFO("second backward into the gradient of ", inputs_[i].name);
      const Tensor twice = variables[i].take_gradient();
      REQUIRE(twice.shape() == inputs_[i].shape);
      std::vector<float> expected = analytic_[i];
      for (float& x : expected) x *= 2;
      CHECK(relative_error(twice.to_vector(), expected) < 1e-5);
    }
  }

  struct Projection {
    double sum = 0;    // L
    double noise = 0;  // delta
  };
  Projection project() {
    const NoGrad no_grad;
    Projection p;
    double squares = 0;
    size_t k = 0;
    for (const Variable& output : function_(context_, leaves())) {
      const std::vector<float> y = output.value().to_vector(), w = weights(k++, output.value().size());
      for (size_t i = 0; i < y.size(); ++i) {
        p.sum += static_cast<double>(w[i]) * y[i];
        squares += std::pow(w[i] * std::max(1.0, std::abs(static_cast<double>(y[i]))), 2);
      }
    }
    p.noise = 4 * kRoundingUnit * std::sqrt(squares);
    return p;
  }

  // D(h) for the element that `x` refers to.
  double difference(float& x, double h, double& noise) {
    const float middle = x;
    const float above = static_cast<float>(middle + h), below = static_cast<float>(middle - h);
    x = above;
    const Projection p = project();
    x = below;
    const Projection q = project();
    x = middle;
    noise = std::max({noise, p.noise, q.noise});
    return (p.sum - q.sum) / (static_cast<double>(above) - static_cast<double>(below));
  }

  void compare(size_t i) {
    double largest = 0;
    for (float g : analytic_[i]) largest = std::max(largest, std::abs(static_cast<double>(g)));
    const int64_t n = static_cast<int64_t>(values_[i].size()), samples = std::min(n, kSamples);
    for (int64_t s = 0; s < samples; ++s) {
      // Evenly spread, the first and the last element included.
      const size_t e = static_cast<size_t>(samples == 1 ? 0 : s * (n - 1) / (samples - 1));
      float& x = values_[i][e];
      double noise = 0;
      const double coarse = difference(x, kStep, noise), fine = difference(x, kStep / 2, noise);
      const double numeric = (4 * fine - coarse) / 3;
      const double tolerance = std::abs(numeric - fine) + 2 * noise / kStep;
      const double analytic = analytic_[i][e];
      INFO("input ", inputs_[i].name, ", element ", e, ": analytic ", analytic, ", numeric ", numeric, " +- ",
           tolerance, ", largest ", largest);
      REQUIRE(std::isfinite(analytic));
      REQUIRE(std::abs(analytic - numeric) <= tolerance);
      if (largest > 0) REQUIRE(tolerance <= 0.02 * largest);
    }
  }

  Context context_{make_cpu_backend({.threads = 1, .poison = true})};
  std::vector<GradientInput> inputs_;
  CheckedFunction function_;
  uint64_t seed_;
  std::vector<std::vector<float>> values_, analytic_;
};

inline void check_gradient(std::vector<GradientInput> inputs, CheckedFunction function, uint64_t seed = 1) {
  GradientCheck(std::move(inputs), std::move(function), seed).run();
}

}  // namespace trencadis::test
