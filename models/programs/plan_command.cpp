#include "models/programs/plan_command.h"

#include "models/options/options.h"
#include "models/planner/plan_report.h"
#include "models/programs/agree_on_options.h"
#include "models/programs/program.h"
#include "models/trainer/model_options.h"

namespace trencadis {

std::string plan_text(const TrainOptions& options, int world) {
  PlanRequest request;
  request.world = options.plan_world > 0 ? static_cast<int>(options.plan_world) : world;
  request.parameters = options.plan_parameters;
  // No data is opened for a plan: the vocabulary is that of the data which the preset was made for.
  request.model = model_config(options, options.vocab_size > 0 ? options.vocab_size : usual_vocab_size(options.preset));
  request.batch_size = options.batch_size;
  request.grad_accum = static_cast<int>(options.grad_accum);
  request.prefetch = static_cast<int>(options.prefetch);
  request.reshard_after_forward = options.reshard_after_forward;
  request.device_memory = options.plan_device_memory;
  return plan_report(request);
}

int plan_command(const Arguments& arguments) {
  return on_ranks(arguments, [&](MpiEnvironment& mpi, Communicator& world) {
    const TrainOptions options =
        agree_on_options(world, [&] { return parse_plan(arguments, world.size(), set_sizes_from); });
    const std::string& asked = options.print_and_exit;
    if (mpi.rank() == 0) fmt::print("{}", asked.empty() ? plan_text(options, world.size()) : asked);
  });
}

}  // namespace trencadis
