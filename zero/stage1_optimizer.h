// Stage 1: the optimizer state is sharded. Memory of one rank, in elements (W ranks, Psi elements of the model):
//
//   parameters       Psi     full, always
//   gradients        Psi     full; with several micro-batches also the fresh gradients of the unit being filled (and
//   the root) optimizer state  2 Psi/W own shard: a rank steps only what it owns traffic          2 Psi (W-1)/W:
//   reduce-scatter of the step's gradients, all-gather of the stepped parameters
//
// Difference to stage 0: the all-reduce is cut in two, and the optimizer steps between the halves. Descriptions of
// ZeRO-1 that all-reduce the gradients and gather the parameters send half as much again for the same values.
#pragma once

#include "zero/strategy.h"

namespace trencadis {

class Stage1Optimizer final : public ShardingStrategy {
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
  void reduce(UnitState& unit);
};

}  // namespace trencadis
