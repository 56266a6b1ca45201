// The gradient of a two-layer net, by the tape and by finite differences: loss = sum of gelu(x W1 + b1) W2.
#include <cmath>
#include <cstdio>

#include "autograd/ops/ops.h"
#include "runtime/cpu/backend.h"

using namespace trencadis;

int main() {
  Context context(make_cpu_backend());
  const auto variable = [&](std::vector<float> values, Shape shape, const char* name) {
    return Variable(Tensor::from(context, values, std::move(shape)), /*requires_grad=*/true, name);
  };
  Variable w1 = variable({0.5f, -0.2f, 0.1f, 0.8f, -0.6f, 0.3f}, {3, 2}, "w1");  // (out, in)
  Variable b1 = variable({0.1f, 0.0f, -0.1f}, {3}, "b1");
  Variable w2 = variable({0.7f, -0.4f, 0.9f}, {1, 3}, "w2");
  const Variable x(Tensor::from(context, std::vector<float>{1.0f, 2.0f}, {1, 2}));  // needs no gradient

  // Three ops, three nodes; each node remembers what it read.
  const auto loss = [&] { return linear(bias_gelu(linear(x, w1), b1), w2); };

  backward(loss());
  const std::vector<float> by_tape = w1.take_gradient().to_vector();

  std::printf("  w1     by tape   by differences\n");
  const float h = 1.0f / 64;
  bool agree = true;
  for (size_t i = 0; i < by_tape.size(); ++i) {
    const NoGrad no_grad;  // forward only: nothing is recorded
    float& w = w1.value().data<float>()[i];
    const float middle = w;
    w = middle + h;
    const float above = loss().value().item();
    w = middle - h;
    const float below = loss().value().item();
    w = middle;
    const float by_differences = (above - below) / (2 * h);
    std::printf("%5.2f  %10.4f  %10.4f\n", middle, by_tape[i], by_differences);
    agree = agree && std::abs(by_tape[i] - by_differences) < 1e-3f;
  }
  return agree ? 0 : 1;
}
