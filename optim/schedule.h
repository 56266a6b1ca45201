// Learning-rate schedules: a closed form of the step number, so that nothing needs saving.
#pragma once

#include <cstdint>

namespace trencadis {

enum class ScheduleKind { constant, linear, cosine };

// step counts from 0. lr(step) = lr * (step + 1) / (warmup + 1) for step < warmup; then, with p the share of the steps
// from warmup to max_steps that has passed, in [0, 1]:
//   constant: lr     linear: lr + (min_lr - lr) p     cosine: min_lr + (lr - min_lr) (1 + cos(pi p)) / 2
struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double lr = 1e-3, min_lr = 1e-4;
  int64_t warmup_steps = 0, max_steps = 1;

  float at(int64_t step) const;
};

}  // namespace trencadis
