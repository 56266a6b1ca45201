// What processes that use GPUs do together first: nothing where the GPUs are real (gpu_start.cpp); where they are
// simulated, their memory becomes one mapping (gpu_start_sim.cpp).
#pragma once

#include "dist/communicator.h"

namespace trencadis {

void start_gpus(Communicator& world);

}  // namespace trencadis
