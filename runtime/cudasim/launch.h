// Launches: from cudaLaunchKernelEx to a grid of blocks that run one after another, and the options and counts of that.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "runtime/cudasim/executor.h"
#include "runtime/cudasim/kernel_error.h"

namespace trencadis::cudasim {

// In which order runnable threads, and the blocks of a grid, take turns. A kernel that is right has one result in all.
enum class Order { forward, reverse, seeded };

struct Options {
  Order order = Order::forward;
  uint64_t seed = 1;
  // Limits of the device (sm_90). A block gets `shared` bytes; more, up to `shared_opt_in`, after cudaFuncSetAttribute.
  size_t shared = 48 * 1024;
  size_t shared_opt_in = 227 * 1024;
};
// Read from TRENCADIS_SIM_ORDER (forward, reverse or seed:N) at first use. Tests may change it between launches.
Options& options();

// What has run so far.
struct Statistics {
  uint64_t launches = 0, blocks = 0, threads = 0, switches = 0, barriers = 0, warp_meetings = 0;
};
Statistics& statistics();

// "layer_norm_backward<float, 256>": a kernel's name as the program's symbol table has it.
std::string kernel_name(const void* kernel);
// What __launch_bounds__ promised of a kernel: the largest block, rounded up to whole warps; 1024 if it says nothing.
int launch_bound(const void* kernel);

// A launch as it stands in a stream.
struct Launch {
  const void* kernel;
  dim3 grid, block;
  size_t dynamic_shared;
  size_t argument_bytes;
  Place place;
};
// Throws KernelError if the device would refuse it.
void check_launch(const Launch& launch);
// Runs all blocks; throws KernelError at the first thing that a kernel does wrong.
void run_grid(const Launch& launch, const std::function<void()>& body);

// The configuration, and where it is given: cudaLaunchKernelEx takes it in place of the plain pointer.
struct ConfigHere {
  ConfigHere(const cudaLaunchConfig_t* c, Place p = Place::current()) : config(c), place(p) {}
  const cudaLaunchConfig_t* config;
  Place place;
};

}  // namespace trencadis::cudasim

// As in <cuda_runtime.h>. The arguments are copied here: the kernel runs later, when its stream comes to it.
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(trencadis::cudasim::ConfigHere here, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  using namespace trencadis::cudasim;
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "a kernel's parameters are copied byte by byte");
  const Launch launch{reinterpret_cast<const void*>(kernel), here.config->gridDim,           here.config->blockDim,
                      here.config->dynamicSmemBytes,         (sizeof(Parameters) + ... + 0), here.place};
  if (here.config->numAttrs != 0)
    throw KernelError(to_string(here.place) + ": launch attributes (clusters, cooperative grids) are not simulated");
  check_launch(launch);
  std::tuple<std::decay_t<Parameters>...> copies(static_cast<Parameters>(std::forward<Arguments>(arguments))...);
  enqueue(here.config->stream, kernel_name(launch.kernel),
          [launch, kernel, copies] { run_grid(launch, [&copies, kernel] { std::apply(kernel, copies); }); });
  return cudaSuccess;
}

// <cuda_runtime.h> has this form for nvcc only.
template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
