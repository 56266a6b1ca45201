// train_gpt: trains a GPT, alone or under mpirun. Here errors become exit codes, and nowhere else:
// 0 done, 2 usage, 3 data or checkpoint, 4 diverged, 1 anything else.
#include <cstdlib>

#include "dist/mpi/mpi_communicator.h"
#include "dist/mpi/mpi_environment.h"
#include "dist/on_all_ranks.h"
#include "models/planner/plan_report.h"
#include "models/programs/devices/choose_device.h"
#include "models/report/page.h"
#include "models/trainer/initial_weights.h"
#include "models/trainer/resume.h"
#include "models/trainer/trainer.h"

namespace {

using namespace trencadis;

int exit_code_of(const std::exception& error) {
  if (dynamic_cast<const UsageError*>(&error)) return 2;
  if (dynamic_cast<const DataError*>(&error)) return 3;
  if (dynamic_cast<const DivergedError*>(&error)) return 4;
  return 1;
}

// Errors that come to all ranks alike: rank 0 says them. Of any other the rest must be told, by ending the job.
bool all_ranks_know(const std::exception& error) {
  return dynamic_cast<const AgreedMark*>(&error) || dynamic_cast<const DivergedError*>(&error);
}

// Parses on every rank and makes sure that all ranks were told the same.
TrainOptions agree_on_options(int argc, char** argv, Communicator& world) {
  TrainOptions options;
  on_all_ranks(world, [&] { options = parse_options(argc, argv, world.size(), set_sizes_from); });
  const std::vector<std::string> told = exchange_texts(world, fingerprint(options));
  std::string differences;
  for (int r = 1; r < world.size(); ++r) {
    const std::string difference = fingerprint_difference(told[0], 0, told[static_cast<size_t>(r)], r);
    if (!difference.empty()) differences += (differences.empty() ? "" : "; ") + difference;
  }
  if (!differences.empty()) throw Agreed<UsageError>("the ranks were given different flags: " + differences);
  return options;
}

PlanRequest plan_request(const TrainOptions& options, int world) {
  PlanRequest request;
  request.world = options.plan_world > 0 ? static_cast<int>(options.plan_world) : world;
  request.parameters = options.plan_parameters;
  // No data is opened for a plan; the presets named gpt2 stand for its tokens.
  request.model = model_config(options, options.vocab_size > 0               ? options.vocab_size
                                        : options.preset.starts_with("gpt2") ? 50257
                                                                             : 256);
  request.batch_size = options.batch_size;
  request.grad_accum = static_cast<int>(options.grad_accum);
  request.prefetch = static_cast<int>(options.prefetch);
  request.reshard_after_forward = options.reshard_after_forward;
  request.device_memory = options.plan_device_memory;
  return request;
}

}  // namespace

int main(int argc, char** argv) {
  int rank = 0, size = 1;
  try {
    if (argc > 1 && std::string_view(argv[1]) == "report") return report_command(argc, argv);
    MpiEnvironment mpi;
    rank = mpi.rank();
    size = mpi.size();
    try {
      const bool under_mpirun = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
      const auto world = make_mpi_world();
      TrainOptions options = agree_on_options(argc, argv, *world);
      if (!options.print_and_exit.empty()) {
        if (rank == 0) fmt::print("{}", options.print_and_exit);
        return 0;
      }
      if (options.plan) {
        if (rank == 0) fmt::print("{}", plan_report(plan_request(options, size)));
        return 0;
      }
      const StopSignals signals;  // a request to end may come while checkpoints are checked or the data is opened
      std::vector<std::string> notes;
      const std::optional<FoundCheckpoint> resumed = resume_run(options, *world, notes);
      const CoreShare cores = share_cores(*world);
      Progress progress(rank == 0 ? options.progress : "off", options.max_steps, under_mpirun);
      if (!cores.warning.empty()) progress.note("warning: " + cores.warning);
      for (const std::string& note : notes) progress.note(note);
      RankDevice device = choose_device(options, *world, mpi, cores.threads);
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
      return 0;
    } catch (const std::exception& e) {
      const bool together = all_ranks_know(e);
      if (rank == 0 || !together) {
        std::fflush(stdout);
        fmt::print(stderr, "train_gpt: {}{}\n", size > 1 && !together ? fmt::format("rank {}: ", rank) : "", e.what());
      }
      if (!together && size > 1) mpi.abort(exit_code_of(e));
      return exit_code_of(e);
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "train_gpt: {}\n", e.what());
    return exit_code_of(e);
  }
}
