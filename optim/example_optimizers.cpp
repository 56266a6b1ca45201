// SGD and AdamW walk down a narrow valley, f(x, y) = (x^2 + 100 y^2) / 2, under a cosine schedule with warm-up.
#include <cstdio>

#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "runtime/cpu/backend.h"

using namespace trencadis;

namespace {

float descend(Context& context, const Optimizer& optimizer, double lr) {
  const Schedule schedule = {.kind = ScheduleKind::cosine, .lr = lr, .min_lr = 0, .warmup_steps = 5, .max_steps = 100};
  const Tensor point = Tensor::from(context, std::vector<float>{1, 1}, {2}), gradient = Tensor::zeros(context, {2});
  const Tensor states = Tensor::zeros(context, {kMaxOptimizerStates, 2});

  // All that an optimizer sees: raw memory, and the shape that the whole parameter has.
  ParamSlice slice;
  slice.param = slice.master = point;
  slice.gradient = gradient;
  for (int i = 0; i < optimizer.state_count(); ++i) slice.states[static_cast<size_t>(i)] = states.flat_slice(2 * i, 2);
  slice.logical_shape = {2};

  for (int64_t step = 0; step < 100; ++step) {
    const std::vector<float> p = point.to_vector(), g = {p[0], 100 * p[1]};
    context.copy_from_host(gradient, g.data());
    StepInfo info;
    info.lr = schedule.at(step);
    info.t = step + 1;
    optimizer.step({&slice, 1}, info, context.kernels());
  }
  const std::vector<float> p = point.to_vector();
  return 0.5f * (p[0] * p[0] + 100 * p[1] * p[1]);
}

}  // namespace

int main() {
  Context context(make_cpu_backend());
  // The steep direction limits SGD: a rate above 2/100 diverges there. AdamW gives each direction its own scale.
  const float sgd = descend(context, *make_sgd({.momentum = 0}), 0.015);
  const float momentum = descend(context, *make_sgd({.momentum = 0.9f}), 0.015);
  const float adamw = descend(context, *make_adamw({}), 0.05);
  std::printf("start: 50.5\nSGD: %.3f\nSGD with momentum: %.3f\nAdamW: %.3f\n", sgd, momentum, adamw);
  return momentum < sgd && adamw < sgd ? 0 : 1;
}
