// What a rank computes on, as --device says.
#pragma once

#include "models/devices/gpu.h"
#include "models/trainer/options.h"

namespace trencadis {

struct RankDevice {
  std::unique_ptr<Backend> backend;
  GpuSupport* gpus = nullptr;  // null: the CPU
  std::string description;     // for the user
};

// Collective: all ranks compute on the same kind of device, or all throw the same UsageError. `threads`: of a rank on
// the CPU, unless the options say otherwise.
RankDevice choose_device(const TrainOptions& options, Communicator& world, int threads);

}  // namespace trencadis
