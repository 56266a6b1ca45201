#include "zero/plan.h"

#include <algorithm>
#include <set>

namespace trencadis {

int64_t sum_over_units(const PlanConfig& config, int64_t (FlatUnit::*elements)() const) {
  int64_t sum = 0;
  for (const FlatUnit& unit : *config.units) sum += (unit.*elements)();
  return sum;
}

int64_t peak_lent_gradients(const PlanConfig& config, bool in_flight) {
  const std::vector<FlatUnit>& units = *config.units;
  std::vector<int> uses_left(units.size(), 0);
  for (const RegionUse& use : config.uses) ++uses_left[static_cast<size_t>(use.unit)];
  std::set<int> lent;
  int reducing = -1;
  int64_t live = 0, peak = 0;
  for (auto use = config.uses.rbegin(); use != config.uses.rend(); ++use) {
    const auto u = static_cast<size_t>(use->unit);
    if (units[u].trainable_padded() == 0) continue;  // frozen: no reduction whose start would end the one in flight
    if (lent.insert(use->unit).second) live += units[u].trainable_padded();
    peak = std::max(peak, live);
    if (--uses_left[u] > 0) continue;
    lent.erase(use->unit);
    if (in_flight) {
      if (reducing >= 0) live -= units[static_cast<size_t>(reducing)].trainable_padded();
      reducing = use->unit;
    } else {
      live -= units[u].trainable_padded();
    }
  }
  return peak;
}

namespace {

// One use of a unit: whether it must be gathered for it (it is not held from an earlier use), and freed after it.
struct Moment {
  int unit = 0;
  bool gather = true, release = true;
};

// Forward, then backward in reverse.
std::vector<Moment> moments_of(const PlanConfig& config) {
  std::vector<int> backwards_left(config.units->size(), 0);
  std::vector<bool> held(config.units->size(), false);
  std::vector<Moment> moments;
  const auto use_unit = [&](int unit, bool keep) {
    const auto u = static_cast<size_t>(unit);
    moments.push_back({unit, !held[u], !keep});
    held[u] = keep;
  };
  for (const RegionUse& use : config.uses) {
    ++backwards_left[static_cast<size_t>(use.unit)];
    use_unit(use.unit, use.backward_follows || !config.reshard_after_forward);
  }
  for (auto use = config.uses.rbegin(); use != config.uses.rend(); ++use) {
    const auto u = static_cast<size_t>(use->unit);
    const bool last = --backwards_left[u] == 0;
    if (use->backward_needs_parameters || (held[u] && last))
      use_unit(use->unit, !config.reshard_after_forward && !last);
  }
  return moments;
}

}  // namespace

GatherPlan plan_gathers(const PlanConfig& config) {
  GatherPlan plan;
  plan.gathers.assign(config.units->size(), 0);
  const std::vector<Moment> moments = moments_of(config);
  std::vector<bool> live(config.units->size(), false);
  int64_t elements = 0;
  const auto gather = [&](int unit) {
    const auto u = static_cast<size_t>(unit);
    if (live[u]) return;
    live[u] = true;
    ++plan.gathers[u];
    elements += (*config.units)[u].padded();
    plan.peak_elements = std::max(plan.peak_elements, elements);
  };
  for (size_t i = 0; i < moments.size(); ++i) {
    if (moments[i].gather) gather(moments[i].unit);
    int ahead = config.prefetch;
    for (size_t next = i + 1; next < moments.size() && ahead > 0; ++next)
      if (moments[next].gather) gather(moments[next].unit), --ahead;
    const auto u = static_cast<size_t>(moments[i].unit);
    if (!moments[i].release) continue;
    live[u] = false;
    elements -= (*config.units)[u].padded();
  }
  return plan;
}

}  // namespace trencadis
