// Kernels on which the simulator itself is tested. Each function runs one and returns what it computed.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trencadis::sim_test {

// ---- kernels_sync.cu
std::vector<float> block_sums(const std::vector<float>& x, int blocks, int threads);
// In which order the threads of one block came by.
std::vector<int> order_of_threads(int threads);
std::vector<int> order_of_blocks(int blocks);
// Every thread's number in the grid, written where that number says; a grid of (3,2,2) blocks of (2,3,4) threads.
std::vector<int> numbers_in_three_dimensions();
// x, moved by one place `rounds` times, with two barriers a round.
std::vector<int> rotate(const std::vector<int>& x, int rounds);
// Of 96 threads the first `yes` vote yes: __syncthreads_count, _and, _or as every thread got them, or -1 if they differ.
std::vector<int> votes(int yes);
// Every lane brings its number; kind: 'i' from lane `operand`, 'u' up, 'd' down, 'x' xor.
std::vector<int> shuffled(char kind, int operand, int width);
// All results of ballot, any, all, match, and the reductions over the lanes of `mask`, which bring `values`.
struct WarpResults {
  unsigned ballot, any, all, sum, min, max, bits_and, bits_or, bits_xor;
  int signed_sum, signed_min, signed_max;
  std::vector<unsigned> match;
};
WarpResults warp_results(unsigned mask, const std::vector<int>& values);
// The kernel of rotate() and others, for launch_bound and kernel_name.
std::vector<std::pair<std::string, int>> names_and_bounds();

// ---- kernels_memory.cu
// What a block finds in shared memory before it writes there: fixed size, then dynamic; the block writes, and the next one
// looks again.
std::vector<uint32_t> fresh_shared_memory();
// C + A B of one warp by mma_m16n8k16 (bf16) or mma_m16n8k8 (tf32); row-major (16,K), (K,8), (16,8).
std::vector<float> multiply(bool bf16, const std::vector<float>& a, const std::vector<float>& b,
                            const std::vector<float>& c);
std::vector<uint32_t> rounded_to_tf32(const std::vector<float>& x);
// Sees x through two asynchronous copies: what is in shared memory before, between and after the waits.
std::vector<float> copied_in_groups(const std::vector<float>& x);
// Every atomic function, called by 64 threads with their numbers: see the test.
std::vector<int64_t> atomics();
// A kernel that indexes a SharedArray of 32 elements with `index` in thread 7 of block 2.
void index_shared(int index);
// The launch's place in the text of errors: a block of `threads` of a kernel bound to 128.
void launch_threads(int threads);

}  // namespace trencadis::sim_test
