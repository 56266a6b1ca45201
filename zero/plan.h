// Predicted memory and traffic of a training run, from the configuration alone: arithmetic on layouts, no allocation.
//
// The unit of memory is the byte as the allocator is asked for it; the tests hold measured and
// predicted equal to the byte.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/region.h"
#include "zero/flat_unit.h"

namespace trencadis {

struct PlanConfig {
  const std::vector<FlatUnit>* units = nullptr;
  // The uses of units in one micro-batch's forward, in order; backward runs them in reverse.
  std::vector<RegionUse> uses;
  int world = 1;
  int grad_accum = 1;
  int prefetch = 1;
  bool reshard_after_forward = true;
  int optimizer_states = 2;
};

struct StateBytes {
  int64_t parameter = 0, gradient = 0, optimizer = 0;
  int64_t sum() const { return parameter + gradient + optimizer; }
};

struct StagePlan {
  StateBytes at_rest, peak;
  // Elements per rank and step whose (W-1)/W part is sent, by collective; zero/README.md has the formulas.
  int64_t all_reduce = 0, reduce_scatter = 0, all_gather = 0;
};

// Building blocks of the stages' predictions --------------------------------------------------------------------------

inline constexpr int64_t kF32 = 4;

int64_t sum_over_units(const PlanConfig& config, int64_t (FlatUnit::*elements)() const);

// The largest number of elements of full gradient buffers alive at once in a backward, when a unit's buffer is
// lent at its first use in backward and given back after its last; with `in_flight`, a buffer stays until the
// next one is complete.
int64_t peak_lent_gradients(const PlanConfig& config, bool in_flight);

// Stage 3: the largest number of elements gathered at once, and how often each unit is gathered in a micro-batch. The
// order of uses is known from the micro-batch before (prefetch = 0 describes the first one too).
struct GatherPlan {
  int64_t peak_elements = 0;
  std::vector<int64_t> gathers;  // by unit
};
GatherPlan plan_gathers(const PlanConfig& config);

}  // namespace trencadis
