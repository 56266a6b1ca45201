// For .cu files of the simulator's own tests: runs a kernel at once, on host memory, past streams and their executor, so
// that a test can catch what it throws.
#pragma once

#include <functional>

#include "runtime/cudasim/launch.h"

namespace trencadis::sim_test {

template <typename... Parameters, typename... Arguments>
void run_now(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t dynamic_shared, Arguments... arguments) {
  const cudasim::Launch launch{reinterpret_cast<const void*>(kernel),
                               grid,
                               block,
                               dynamic_shared,
                               (sizeof(Parameters) + ... + 0),
                               cudasim::Place::current()};
  cudasim::check_launch(launch);
  cudasim::run_grid(launch, [=] { kernel(static_cast<Parameters>(arguments)...); });
}

}  // namespace trencadis::sim_test
