// One block adds up 128 numbers: with its barrier and without, in two orders of threads. Build and run: ninja example_sum
#include <cuda_runtime.h>

#include <cmath>

#include "device/shared_array.h"
#include "runtime/cudasim/launch.h"

using namespace trencadis;
using cudasim::Order;

namespace {

template <bool BARRIER>
__global__ void __launch_bounds__(128) add_up(float* sum, const float* x) {
  __shared__ SharedArray<float, 4> of_warp;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float mine = x[threadIdx.x];
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_down_sync(0xffffffffu, mine, distance);
    mine += other;
  }
  if (lane == 0) of_warp[warp] = mine;
  if (BARRIER) __syncthreads();
  if (threadIdx.x == 0) *sum = of_warp[0] + of_warp[1] + of_warp[2] + of_warp[3];
}

float sum_on_device(void (*kernel)(float*, const float*), int threads) {
  float x[128], result = 0;
  for (int i = 0; i < 128; ++i) x[i] = static_cast<float>(i);
  float *input, *sum;
  cudaMalloc(reinterpret_cast<void**>(&input), sizeof x);
  cudaMalloc(reinterpret_cast<void**>(&sum), sizeof result);
  cudaMemcpy(input, x, sizeof x, cudaMemcpyHostToDevice);
  cudaLaunchConfig_t config{};
  config.gridDim = 1;
  config.blockDim = threads;
  cudaLaunchKernelEx(&config, kernel, sum, input);
  cudaMemcpy(&result, sum, sizeof result, cudaMemcpyDeviceToHost);  // waits for the kernel
  cudaFree(input);
  cudaFree(sum);
  return result;
}

}  // namespace

int main() {
  fmt::print("threads run    with the barrier  without\n");
  for (const auto& [order, name] : {std::pair{Order::forward, "0, 1, 2, ..."}, {Order::reverse, "127, 126, ..."}}) {
    cudasim::options().order = order;
    const float with = sum_on_device(add_up<true>, 128), without = sum_on_device(add_up<false>, 128);
    fmt::print("{:14} {:>16} {:>8}\n", name, with, std::isnan(without) ? "NaN" : fmt::format("{}", without));
  }
  try {
    sum_on_device(add_up<true>, 256);
  } catch (const cudasim::KernelError& error) {
    fmt::print("\n{}\n", error.what());
  }
}
