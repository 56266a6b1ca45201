// Kernels whose threads wait for each other.
#include <cuda_runtime.h>

#include "device/shared_array.h"
#include "kernels.h"

namespace trencadis::sim_test {

namespace {

__global__ void __launch_bounds__(1024) block_sums_kernel(float* sums, const float* x, int n) {
  __shared__ SharedArray<float, 32> of_warp;
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  float sum = i < n ? x[i] : 0.0f;
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(0xffffffffu, sum, distance);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) total += of_warp[warp];
    sums[blockIdx.x] = total;
  }
}

}  // namespace

std::vector<float> block_sums(const std::vector<float>& x, int blocks, int threads) {
  std::vector<float> sums(static_cast<size_t>(blocks));
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  cudaLaunchKernelEx(&config, block_sums_kernel, sums.data(), x.data(), static_cast<int>(x.size()));
  return sums;
}

}  // namespace trencadis::sim_test
