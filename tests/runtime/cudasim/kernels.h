// Kernels on which the simulator itself is tested; each launches on stream 0 and returns what it computed. In
// kernels_sync.cu, kernels_memory.cu.
#pragma once

#include <cstdint>
#include <vector>

namespace trencadis::sim_test {

// Sum over a block, per block: shuffles, shared memory, a barrier.
std::vector<float> block_sums(const std::vector<float>& x, int blocks, int threads);

}  // namespace trencadis::sim_test
