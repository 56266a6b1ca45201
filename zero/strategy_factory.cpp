// From a stage's number to its file.
#include "zero/stage0_ddp.h"
#include "zero/stage1_optimizer.h"
#include "zero/stage2_gradients.h"
#include "zero/stage3_parameters.h"

namespace trencadis {

namespace {
UsageError no_such_stage(int stage) {
  return UsageError(fmt::format("ZeRO stage {} does not exist; choose 0 (DDP), 1, 2 or 3", stage));
}
}  // namespace

std::unique_ptr<ShardingStrategy> make_strategy(int stage, ZeroRuntime& runtime) {
  switch (stage) {
    case 0:
      return std::make_unique<Stage0DDP>(runtime);
    case 1:
      return std::make_unique<Stage1Optimizer>(runtime);
    case 2:
      return std::make_unique<Stage2Gradients>(runtime);
    case 3:
      return std::make_unique<Stage3Parameters>(runtime);
    default:
      throw no_such_stage(stage);
  }
}

StagePlan predict_stage(int stage, const PlanConfig& config) {
  switch (stage) {
    case 0:
      return Stage0DDP::predict(config);
    case 1:
      return Stage1Optimizer::predict(config);
    case 2:
      return Stage2Gradients::predict(config);
    case 3:
      return Stage3Parameters::predict(config);
    default:
      throw no_such_stage(stage);
  }
}

}  // namespace trencadis
