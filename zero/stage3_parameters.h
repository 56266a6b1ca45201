// Stage 3: the parameters are sharded too. Memory of one rank, in elements (W ranks, Psi elements of the model):
//
//   parameters       Psi/W   own shard, and full buffers of the unit in use and of those prefetched
//   gradients        Psi/W   own shard, and full buffers lent for a moment, as in stage 2
//   optimizer state  2 Psi/W own shard
//   traffic          3 ga Psi (W-1)/W: a gather for forward, one for backward, a reduce-scatter; no gather after the
//   step
//
// Difference to stage 2: a unit's parameters exist from just before a use to right after it. While a unit computes, the
// next ones in the order of the last pass are gathered (prefetch).
#pragma once

#include "zero/strategy.h"

namespace trencadis {

class Stage3Parameters final : public ShardingStrategy {
 public:
  using ShardingStrategy::ShardingStrategy;

  void allocate(UnitState& unit) override;
  void before_forward(UnitState& unit, const RegionUse& use) override;
  void after_forward(UnitState& unit, const RegionUse& use) override;
  void before_backward(UnitState& unit, const RegionUse& use) override;
  void after_backward(UnitState& unit, const RegionUse& use) override;
  void gradients_ready(UnitState& unit) override;
  void gradients_ready_early(UnitState& unit) override;
  void finish_pass() override;
  void after_step(UnitState& unit) override;
  void gather_for_reading(UnitState& unit) override;
  void release_after_reading(UnitState& unit) override;
  static StagePlan predict(const PlanConfig& config);

 private:
  void use(UnitState& unit);     // gathers what is missing, starts the next gathers, waits
  void gather(UnitState& unit);  // starts a gather unless the parameters are there or on their way
  void release(UnitState& unit);
  void release_skipped(const std::vector<int>& skipped);
};

}  // namespace trencadis
