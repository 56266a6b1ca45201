#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trencadis {

float Schedule::at(int64_t step) const {
  if (step < warmup_steps)
    return static_cast<float>(lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps + 1));
  const double length = static_cast<double>(std::max<int64_t>(1, max_steps - warmup_steps));
  const double p = std::min(1.0, static_cast<double>(step - warmup_steps) / length);
  switch (kind) {
    case ScheduleKind::constant:
      return static_cast<float>(lr);
    case ScheduleKind::linear:
      return static_cast<float>(lr + (min_lr - lr) * p);
    case ScheduleKind::cosine:
      break;
  }
  return static_cast<float>(min_lr + (lr - min_lr) * 0.5 * (1.0 + std::cos(std::numbers::pi * p)));
}

}  // namespace trencadis
