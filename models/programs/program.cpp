#include "models/programs/program.h"

#include <cstdio>

#include "dist/mpi/mpi_communicator.h"
#include "dist/on_all_ranks.h"
#include "runtime/check.h"

namespace trencadis {

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"train", "train a language model, alone or on the ranks of mpirun", train_command},
      {"plan", "what each ZeRO stage would need of memory and send, without running anything", plan_command},
      {"report", "a page of pictures of finished runs", report_command},
      {"export", "a Hugging Face folder from a checkpoint", export_command},
  };
  return all;
}

int exit_code_of(const std::exception& error) {
  if (dynamic_cast<const UsageError*>(&error)) return 2;
  if (dynamic_cast<const DataError*>(&error)) return 3;
  if (dynamic_cast<const DivergedError*>(&error)) return 4;
  return 1;
}

bool all_ranks_know(const std::exception& error) {
  return dynamic_cast<const AgreedMark*>(&error) || dynamic_cast<const DivergedError*>(&error);
}

int on_ranks(const Arguments& arguments, const std::function<void(MpiEnvironment&, Communicator&)>& work) {
  MpiEnvironment mpi;
  const int size = mpi.size();
  try {
    const auto world = make_mpi_world();
    work(mpi, *world);
    return 0;
  } catch (const std::exception& e) {
    const bool together = all_ranks_know(e);
    if (mpi.rank() == 0 || !together) {
      std::fflush(stdout);
      fmt::print(stderr, "{}: {}{}\n", arguments.program,
                 size > 1 && !together ? fmt::format("rank {}: ", mpi.rank()) : "", e.what());
    }
    if (!together && size > 1) mpi.abort(exit_code_of(e));
    return exit_code_of(e);
  }
}

}  // namespace trencadis
