// Kernels whose threads wait for each other.
#include <cuda_runtime.h>

#include "device/shared_array.h"
#include "kernels.h"
#include "run_now.h"

namespace trencadis::sim_test {

namespace {

constexpr unsigned kAll = 0xffffffffu;

__global__ void __launch_bounds__(1024) block_sums_kernel(float* sums, const float* x, int n) {
  __shared__ SharedArray<float, 32> of_warp;
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  float sum = i < n ? x[i] : 0.0f;
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(kAll, sum, distance);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) total += of_warp[warp];
    sums[blockIdx.x] = total;
  }
}

__global__ void order_kernel(int* order, int* count, bool of_blocks) {
  if (of_blocks && threadIdx.x != 0) return;
  order[atomicAdd(count, 1)] = static_cast<int>(of_blocks ? blockIdx.x : threadIdx.x);
}

__global__ void __launch_bounds__(24) numbers_kernel(int* out) {
  const unsigned in_block = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned number = block * (blockDim.x * blockDim.y * blockDim.z) + in_block;
  out[number] = static_cast<int>(number);
}

template <int N>
__global__ void __launch_bounds__(N) rotate_kernel(int* x, int rounds) {
  __shared__ SharedArray<int, N> ring;
  const int i = static_cast<int>(threadIdx.x), n = static_cast<int>(blockDim.x);
  ring[i] = x[i];
  for (int round = 0; round < rounds; ++round) {
    __syncthreads();
    const int next = ring[(i + 1) % n];
    __syncthreads();
    ring[i] = next;
  }
  x[i] = ring[i];
}

__global__ void __launch_bounds__(96) votes_kernel(int* results, int yes) {
  const int vote = static_cast<int>(threadIdx.x) < yes;
  const int votes[] = {__syncthreads_count(vote), __syncthreads_and(vote), __syncthreads_or(vote)};
  for (int i = 0; i < 3; ++i) results[threadIdx.x * 3 + i] = votes[i];
}

__global__ void __launch_bounds__(32) shuffle_kernel(int* out, char kind, int operand, int width) {
  const int value = static_cast<int>(threadIdx.x);
  int got = -1;
  if (kind == 'i') got = __shfl_sync(kAll, value, operand, width);
  if (kind == 'u') got = __shfl_up_sync(kAll, value, static_cast<unsigned>(operand), width);
  if (kind == 'd') got = __shfl_down_sync(kAll, value, static_cast<unsigned>(operand), width);
  if (kind == 'x') got = __shfl_xor_sync(kAll, value, operand, width);
  out[value] = got;
}

__global__ void __launch_bounds__(32) warp_results_kernel(unsigned* out, const int* values, unsigned mask) {
  if (!(mask >> threadIdx.x & 1)) return;
  const int value = values[threadIdx.x];
  const auto bits = static_cast<unsigned>(value);
  const unsigned results[] = {__ballot_sync(mask, value > 0),
                              static_cast<unsigned>(__any_sync(mask, value > 0)),
                              static_cast<unsigned>(__all_sync(mask, value > 0)),
                              __reduce_add_sync(mask, bits),
                              __reduce_min_sync(mask, bits),
                              __reduce_max_sync(mask, bits),
                              __reduce_and_sync(mask, bits),
                              __reduce_or_sync(mask, bits),
                              __reduce_xor_sync(mask, bits),
                              static_cast<unsigned>(__reduce_add_sync(mask, value)),
                              static_cast<unsigned>(__reduce_min_sync(mask, value)),
                              static_cast<unsigned>(__reduce_max_sync(mask, value)),
                              __match_any_sync(mask, value)};
  for (int i = 0; i < 13; ++i) out[threadIdx.x * 13 + i] = results[i];
}

}  // namespace

std::vector<float> block_sums(const std::vector<float>& x, int blocks, int threads) {
  std::vector<float> sums(static_cast<size_t>(blocks));
  run_now(block_sums_kernel, blocks, threads, 0, sums.data(), x.data(), x.size());
  return sums;
}

std::vector<int> order_of_threads(int threads) {
  std::vector<int> order(static_cast<size_t>(threads));
  int count = 0;
  run_now(order_kernel, 1, threads, 0, order.data(), &count, false);
  return order;
}

std::vector<int> order_of_blocks(int blocks) {
  std::vector<int> order(static_cast<size_t>(blocks));
  int count = 0;
  run_now(order_kernel, blocks, 2, 0, order.data(), &count, true);
  return order;
}

std::vector<int> numbers_in_three_dimensions() {
  std::vector<int> numbers(3 * 2 * 2 * 2 * 3 * 4, -1);
  run_now(numbers_kernel, dim3(3, 2, 2), dim3(2, 3, 4), 0, numbers.data());
  return numbers;
}

std::vector<int> rotate(const std::vector<int>& x, int rounds) {
  std::vector<int> y = x;
  run_now(rotate_kernel<256>, 1, y.size(), 0, y.data(), rounds);
  return y;
}

std::vector<int> votes(int yes) {
  std::vector<int> all(96 * 3);
  run_now(votes_kernel, 1, 96, 0, all.data(), yes);
  std::vector<int> result(all.begin(), all.begin() + 3);
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i] != result[i % 3]) result[i % 3] = -1;
  return result;
}

std::vector<int> shuffled(char kind, int operand, int width) {
  std::vector<int> out(32);
  run_now(shuffle_kernel, 1, 32, 0, out.data(), kind, operand, width);
  return out;
}

WarpResults warp_results(unsigned mask, const std::vector<int>& values) {
  std::vector<unsigned> all(32 * 13);
  run_now(warp_results_kernel, 1, 32, 0, all.data(), values.data(), mask);
  WarpResults results{};
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned* r = &all[lane * 13];
    results.match.push_back(r[12]);
    if (mask >> lane & 1)
      results = {r[0],
                 r[1],
                 r[2],
                 r[3],
                 r[4],
                 r[5],
                 r[6],
                 r[7],
                 r[8],
                 static_cast<int>(r[9]),
                 static_cast<int>(r[10]),
                 static_cast<int>(r[11]),
                 results.match};
  }
  return results;
}

std::vector<std::pair<std::string, int>> names_and_bounds() {
  std::vector<std::pair<std::string, int>> found;
  for (const void* kernel :
       {reinterpret_cast<const void*>(order_kernel), reinterpret_cast<const void*>(numbers_kernel),
        reinterpret_cast<const void*>(rotate_kernel<256>), reinterpret_cast<const void*>(block_sums_kernel)})
    found.emplace_back(cudasim::kernel_name(kernel), cudasim::launch_bound(kernel));
  return found;
}

}  // namespace trencadis::sim_test
