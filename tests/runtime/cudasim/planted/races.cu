// Bugs between blocks, which no barrier orders. Most give right numbers here, where blocks run one after another: only
// ThreadSanitizer, to which every CUDA thread is a thread of its own, finds them.
#include "device/shared_array.h"
#include "plant.h"

namespace trencadis::planted {

namespace {

constexpr int N = 32, BLOCKS = 4;

template <bool BROKEN>
__global__ void __launch_bounds__(N) add_without_atomic(float* sums, const float* in) {
  const float x = in[blockIdx.x * N + threadIdx.x];
  if (BROKEN)
    sums[threadIdx.x] += x;
  else
    atomicAdd(&sums[threadIdx.x], x);
}

// Every block leaves its part; the block that comes last adds them up.
template <bool BROKEN>
__global__ void __launch_bounds__(N)
    last_block_without_fence(float* sums, const float* in, float* parts, unsigned* done) {
  __shared__ SharedArray<bool, 1> last;
  parts[blockIdx.x * N + threadIdx.x] = in[blockIdx.x * N + threadIdx.x];
  if (!BROKEN) __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last[0] = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!last[0]) return;
  if (!BROKEN) __threadfence();
  float sum = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) sum += parts[block * N + threadIdx.x];
  sums[threadIdx.x] = sum;
}

// Each block goes on from what the one before it has written.
template <bool BROKEN>
__global__ void __launch_bounds__(N) block_waits_for_its_neighbour(float* running, const float* in) {
  float sum = 0;
  if (BROKEN) {
    sum = in[blockIdx.x * N + threadIdx.x] + (blockIdx.x > 0 ? running[(blockIdx.x - 1) * N + threadIdx.x] : 0.0f);
  } else {
    for (unsigned block = 0; block <= blockIdx.x; ++block) sum += in[block * N + threadIdx.x];
  }
  running[blockIdx.x * N + threadIdx.x] = sum;
}

// Neighbouring blocks overlap by one element, which both write.
template <bool BROKEN>
__global__ void __launch_bounds__(N) blocks_overlap(float* out, const float* in) {
  const unsigned begin = blockIdx.x * (BROKEN ? N - 1 : N);
  out[begin + threadIdx.x] = in[begin + threadIdx.x];
}

// The same value from all threads of a block: harmless on today's hardware, undefined in the language.
template <bool BROKEN>
__global__ void __launch_bounds__(N) all_write_the_flag(float* flag, const float* in) {
  if (in[threadIdx.x] < 0.0f) return;
  if (BROKEN || threadIdx.x == 0) flag[blockIdx.x] = 1.0f;
}

std::vector<float> input() {
  std::vector<float> x(N * BLOCKS);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % N + i / N);
  return x;
}

// What the blocks' rows add up to: column i holds i, i + 1, i + 2, i + 3.
bool are_sums(const std::vector<float>& sums) {
  for (size_t i = 0; i < N; ++i)
    if (sums[i] != static_cast<float>(4 * i + 6)) return false;
  return true;
}

bool adds(bool broken) {
  Global<float> in(input()), sums(std::vector<float>(N, 0.0f));
  launch(broken ? add_without_atomic<true> : add_without_atomic<false>, BLOCKS, N, 0, sums.data(), in.data());
  return are_sums(sums.get());
}

bool last_adds(bool broken) {
  Global<float> in(input()), sums(N), parts(N * BLOCKS);
  Global<unsigned> done(std::vector<unsigned>(1, 0));
  launch(broken ? last_block_without_fence<true> : last_block_without_fence<false>, BLOCKS, N, 0, sums.data(),
         in.data(), parts.data(), done.data());
  return are_sums(sums.get());
}

bool runs_along(bool broken) {
  Global<float> in(input()), running(N * BLOCKS);
  launch(broken ? block_waits_for_its_neighbour<true> : block_waits_for_its_neighbour<false>, BLOCKS, N, 0,
         running.data(), in.data());
  std::vector<float> all = running.get();
  return are_sums({all.end() - N, all.end()});
}

bool overlap(bool broken) {
  Global<float> in(input()), out(N * BLOCKS);
  launch(broken ? blocks_overlap<true> : blocks_overlap<false>, BLOCKS, N, 0, out.data(), in.data());
  const std::vector<float> got = out.get(), expected = input();
  return std::vector<float>(got.begin(), got.begin() + 3 * N) ==
         std::vector<float>(expected.begin(), expected.begin() + 3 * N);
}

bool flags(bool broken) {
  Global<float> in(input()), flag(BLOCKS);
  launch(broken ? all_write_the_flag<true> : all_write_the_flag<false>, BLOCKS, N, 0, flag.data(), in.data());
  return flag.get() == std::vector<float>(BLOCKS, 1.0f);
}

}  // namespace

std::vector<Bug> race_bugs() {
  return {{"add_without_atomic", adds},
          {"last_block_without_fence", last_adds},
          {"block_waits_for_its_neighbour", runs_along},
          {"blocks_overlap", overlap},
          {"all_write_the_flag", flags}};
}

}  // namespace trencadis::planted
