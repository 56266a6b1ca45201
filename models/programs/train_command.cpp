// `trencadis train`: a training run on this rank, from flags to the last line.
#include <atomic>
#include <cstdlib>

#include "dist/mpi/mpi_communicator.h"
#include "dist/on_all_ranks.h"
#include "models/options/options.h"
#include "models/programs/agree_on_options.h"
#include "models/programs/devices/choose_device.h"
#include "models/programs/plan_command.h"
#include "models/programs/program.h"
#include "models/trainer/model_options.h"
#include "models/trainer/resume.h"
#include "models/trainer/trainer.h"

namespace trencadis {

namespace {

void train(TrainOptions options, MpiEnvironment& mpi, Communicator& world) {
  const bool under_mpirun = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
  const StopSignals signals;  // a request to end may come while checkpoints are checked or the data is opened
  std::vector<std::string> notes;
  const std::optional<FoundCheckpoint> resumed = resume_run(options, world, notes);
  const CoreShare cores = share_cores(world);
  Progress progress(mpi.rank() == 0 ? options.progress : "off", options.max_steps, under_mpirun);
  if (!cores.warning.empty()) progress.note("warning: " + cores.warning);
  for (const std::string& note : notes) progress.note(note);
  RankDevice device = choose_device(options, world, mpi, cores.threads);
  progress.note(device.description);
  Profile profile;  // of the steps; outlives the context
  if (options.profile) device.backend = make_profiling_backend(std::move(device.backend), profile);
  Context context(std::move(device.backend));
  CommOptions comm;
  comm.timeout_seconds = static_cast<double>(options.timeout);
  AbortFlag abort{false};
  // Device memory travels through `group`; on the CPU that is the communicator of the hosts.
  const auto hosts = make_mpi_world(comm, &abort, device.gpus ? nullptr : &context);
  std::unique_ptr<Communicator> gpus;
  if (device.gpus) gpus = device.gpus->make_group(context, *hosts, comm, &abort);
  Communicator& group = gpus ? *gpus : *hosts;
  std::unique_ptr<Trainer> trainer;
  try {
    trainer = std::make_unique<Trainer>(options, context, *hosts, group, progress, resumed ? &*resumed : nullptr,
                                        options.profile ? &profile : nullptr);
    trainer->run();
  } catch (const std::exception& e) {
    if (!all_ranks_know(e)) abort = true;  // collectives that still wait for other ranks give up
    throw;
  }
}

}  // namespace

int train_command(const Arguments& arguments) {
  return on_ranks(arguments, [&](MpiEnvironment& mpi, Communicator& world) {
    TrainOptions options =
        agree_on_options(world, [&] { return parse_train(arguments, world.size(), set_sizes_from); });
    if (options.plan && options.print_and_exit.empty()) options.print_and_exit = plan_text(options, world.size());
    if (options.print_and_exit.empty())
      train(std::move(options), mpi, world);
    else if (mpi.rank() == 0)
      fmt::print("{}", options.print_and_exit);
  });
}

}  // namespace trencadis
