// Stage 0, distributed data parallel. Memory of one rank, in elements (W ranks, Psi elements of the model):
//
//   parameters       Psi     full, always
//   gradients        Psi     full; with several micro-batches also the fresh gradients of the unit being filled (and
//   the root) optimizer state  2 Psi   full: every rank steps every parameter traffic          2 Psi (W-1)/W:
//   all-reduce, as reduce-scatter and all-gather, of the step's gradients
#pragma once

#include "zero/strategy.h"

namespace trencadis {

class Stage0DDP final : public ShardingStrategy {
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
