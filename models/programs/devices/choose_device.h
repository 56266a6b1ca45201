// What a rank computes on, as --device says.
#pragma once

#include "dist/mpi/mpi_environment.h"
#include "models/options/train_options.h"
#include "models/programs/devices/gpu.h"

namespace trencadis {

struct RankDevice {
  std::unique_ptr<Backend> backend;
  GpuSupport* gpus = nullptr;  // null: the CPU
  std::string description;     // for the user
};

// Collective: all ranks compute on the same kind of device, or all throw the same UsageError. `threads`: of a rank on
// the CPU, unless the options say otherwise. `mpi` knows which rank of its host this one is: the number of its GPU.
RankDevice choose_device(const TrainOptions& options, Communicator& world, const MpiEnvironment& mpi, int threads);

}  // namespace trencadis
