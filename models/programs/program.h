// What the commands of `trencadis` share: how they are called, and how errors become exit codes, here and nowhere else:
// 0 done, 2 usage, 3 data or checkpoint, 4 diverged, 1 anything else.
#pragma once

#include <functional>

#include "dist/communicator.h"
#include "dist/mpi/mpi_environment.h"
#include "models/options/command_line.h"

namespace trencadis {

struct Command {
  std::string name, what;  // "plan", and a line for --help
  int (*run)(const Arguments& arguments);
};
const std::vector<Command>& commands();

int train_command(const Arguments& arguments);
int plan_command(const Arguments& arguments);
int report_command(const Arguments& arguments);
int export_command(const Arguments& arguments);

int exit_code_of(const std::exception& error);

// Errors that come to all ranks alike: rank 0 says them. Of any other the rest must be told, by ending the job.
bool all_ranks_know(const std::exception& error);

// Runs `work` on this rank of the job that mpirun started, or alone: `world` carries memory of the host. Returns the
// exit code; errors have been said, once, and end the job where other ranks do not know of them.
int on_ranks(const Arguments& arguments, const std::function<void(MpiEnvironment& mpi, Communicator& world)>& work);

}  // namespace trencadis
