// The first step of simulated GPUs: see gpu_start.h.
#include "dist/ncclsim/process_group.h"
#include "models/programs/devices/gpu_start.h"

namespace trencadis {

void start_gpus(Communicator& world) { ncclsim::share_device_memory(world); }

}  // namespace trencadis
