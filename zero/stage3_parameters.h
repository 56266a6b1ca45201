// Stage 3: as stage 2, and each rank keeps 1/W of the parameters; the rest is gathered around each use. Its memory
// table opens stage3_parameters.cpp; what each method must do is said in zero/strategy.h.
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
