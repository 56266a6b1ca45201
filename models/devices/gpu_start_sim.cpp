// The simulated GPUs of several processes: their memory becomes one mapping, before any of it is taken.
#include "dist/ncclsim/process_group.h"
#include "models/devices/gpu_start.h"

namespace trencadis {

void start_gpus(Communicator& world) { ncclsim::share_device_memory(world); }

}  // namespace trencadis
