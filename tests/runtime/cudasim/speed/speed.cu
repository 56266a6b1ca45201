// cudasim_speed [SECONDS]: how fast the simulator switches threads and runs blocks. A measurement, not a test: the numbers
// are in runtime/cudasim/README.md.
#include <cuda_runtime.h>

#include <cstdlib>
#include <ctime>
#include <vector>

#include "../run_now.h"
#include "device/shared_array.h"

using namespace trencadis;

namespace {

__global__ void __launch_bounds__(256) barriers(int* out, int rounds) {
  for (int round = 0; round < rounds; ++round) __syncthreads();
  if (threadIdx.x == 0) *out = rounds;
}

__global__ void __launch_bounds__(256) shuffles(float* out, int rounds) {
  float sum = static_cast<float>(threadIdx.x);
  for (int round = 0; round < rounds; ++round) sum += __shfl_xor_sync(0xffffffffu, sum, 1 << round % 5);
  out[threadIdx.x] = sum;
}

__global__ void __launch_bounds__(256) scale(float* x) { x[blockIdx.x * 256 + threadIdx.x] *= 0.5f; }

// Runs `work` for some seconds of this process's time; prints how often a second what `count` counts has happened.
template <typename Work>
void measure(const char* what, double seconds, uint64_t& count, Work work) {
  work();
  const uint64_t before = count;
  const std::clock_t begin = std::clock();
  double passed = 0;
  while (passed < seconds) {
    work();
    passed = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  }
  fmt::print("{:<28} {:6.1f} million a second\n", what, static_cast<double>(count - before) / passed * 1e-6);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1.0;
  std::vector<float> x(256 * 1000);
  int rounds = 0;
  auto& count = cudasim::statistics();
  measure("switches at barriers", seconds, count.switches,
          [&] { sim_test::run_now(barriers, 4, 256, 0, &rounds, 500); });
  measure("switches at shuffles", seconds, count.switches,
          [&] { sim_test::run_now(shuffles, 4, 256, 0, x.data(), 500); });
  measure("threads that wait for nobody", seconds, count.threads,
          [&] { sim_test::run_now(scale, 1000, 256, 0, x.data()); });
}
