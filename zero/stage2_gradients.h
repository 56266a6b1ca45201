// Stage 2: the gradients are sharded too. Memory of one rank, in elements (W ranks, Psi elements of the model):
//
//   parameters       Psi     full, always
//   gradients        Psi/W   own shard, and full buffers lent for a moment: the root's, the unit's being filled, and
//   one
//                            that is being reduced
//   optimizer state  2 Psi/W own shard
//   traffic          (ga+1) Psi (W-1)/W: reduce-scatter in every micro-batch, all-gather of the stepped parameters
//
// Difference to stage 1: a unit's full gradient lives from its first backward to its reduction. Since it is gone then,
// every micro-batch must be reduced: with many micro-batches a step, stage 1 sends less.
#pragma once

#include "zero/strategy.h"

namespace trencadis {

class Stage2Gradients final : public ShardingStrategy {
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
};

}  // namespace trencadis
