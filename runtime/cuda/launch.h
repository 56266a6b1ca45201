// How every kernel of this project is launched, and how the number of its blocks is found.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "runtime/cuda/handles.h"

namespace trencadis {

// Shared memory that any kernel may use; more is a kernel's own wish (an opt-in), which launch() expresses.
inline constexpr size_t kSharedWithoutOptIn = 48 * 1024;

// Puts kernel<<<grid, block, dynamic_shared, stream>>>(arguments...) into the stream. A grid without blocks is no work,
// and no error. Arguments are converted to the kernel's parameter types.
template <typename... Parameters, typename... Arguments>
void launch(cudaStream_t stream, dim3 grid, dim3 block, size_t dynamic_shared, void (*kernel)(Parameters...),
            Arguments... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (dynamic_shared > kSharedWithoutOptIn)
    CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(dynamic_shared)));
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = dynamic_shared;
  config.stream = stream;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

constexpr int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

// A grid dimension with exactly n blocks: x may have 2^31 - 1, y and z 65535.
inline unsigned exact_blocks(int64_t n, int64_t most = 2147483647) {
  CHECK(n >= 0 && n <= most, "a kernel needs {} blocks in one dimension of its grid; {} are possible", n, most);
  return static_cast<unsigned>(n);
}

// Blocks for a loop in steps of the grid (for (i = global thread; i < n; i += all threads)): one turn for each thread,
// until there are more blocks than the largest GPU runs at a time; then more turns.
inline unsigned stride_blocks(int64_t n, int64_t block) {
  constexpr int64_t kMost = 4096;
  return static_cast<unsigned>(std::min(divide_up(n, block), kMost));
}

// Calls f with std::true_type or std::false_type: a run-time bool becomes a template argument.
template <typename F>
void dispatch_bool(bool value, F&& f) {
  if (value)
    f(std::true_type{});
  else
    f(std::false_type{});
}

}  // namespace trencadis
