// The running block: its threads, which of them may run, and where the others wait.
//
// One CUDA thread is one fiber. A thread runs until it must wait for others (a barrier, a meeting of its warp) or exits;
// then the next runnable one is switched to. Which one is next is the option `order` (launch.h). One block runs at a time
// in the whole process. When nobody can run and not all have exited, the block would hang on a GPU: the error says who
// waits where.
//
// Invariant: while a block runs, on its threads' stacks, the simulator neither allocates memory nor uses containers (but
// to make an error's text): ThreadSanitizer would take what they do for what the kernel does.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cudasim/block.h"
#include "runtime/cudasim/fiber.h"
#include "runtime/cudasim/kernel_error.h"
#include "runtime/cudasim/launch.h"
#include "runtime/cudasim/shared_memory.h"
#include "runtime/cudasim/warp.h"

namespace trencadis::cudasim {

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxThreads = 1024;  // of a block, on all architectures
inline constexpr int kMaxWarps = kMaxThreads / kWarpSize;

// One thread of the running block.
struct Thread {
  enum class State { runnable, at_barrier, in_warp, exited };
  struct PendingCopy {
    void* to;
    const void* from;
    size_t bytes;
    int group;
  };
  static constexpr int kMaxCopies = 128;

  explicit Thread(size_t stack_bytes) : fiber(stack_bytes) {}
  int lane() const { return number % kWarpSize; }
  int warp() const { return number / kWarpSize; }

  Fiber fiber;
  int number = 0;  // x counts first, then y, then z
  uint3 index{};   // its threadIdx
  State state = State::exited;
  Place place;             // where it waits,
  bool predicate = false;  // at_barrier: with what vote,
  WarpCall call;           // in_warp: with what
  PendingCopy copies[kMaxCopies];
  int copy_count = 0, copy_group = 0;
};

// The threads and the shared memory of a block, used again by a later block.
struct Crew {
  std::vector<std::unique_ptr<Thread>> threads;
  SharedMemory shared;

  // ThreadSanitizer's tokens (sanitizers.h). A block of this crew starts after the launch and after the crew's previous
  // block has ended, whose shared memory it takes over; `parity` says which end is whose.
  char started = 0, ended[2] = {}, barrier[2] = {};
  int parity = 0;
  // __syncwarp by mask; two for each, used in turn, so that who leaves late does not see who came early to the next.
  struct WarpToken {
    unsigned mask;
    int phase;
    char token[2];
  };
  static constexpr int kMasks = 16;
  WarpToken warp_tokens[kMaxWarps][kMasks] = {};
};

// A block to run.
struct BlockJob {
  const std::function<void()>* kernel;  // with its arguments; every thread calls it
  dim3 grid, block;
  uint3 index;  // its blockIdx
  size_t static_shared_limit, dynamic_shared;
};
// Throws KernelError; its text names all but the kernel.
void run_block(Crew& crew, const BlockJob& job);

// ---- for warp.cpp: the block that runs

struct Block {
  Block(const BlockJob& of, Crew& by) : job(of), crew(by) {}
  Thread& thread(int number) { return *crew.threads[static_cast<size_t>(number)]; }

  const BlockJob& job;
  Crew& crew;
  int threads = 0;
  int runnable[kMaxThreads];  // a stack of thread numbers
  int runnable_count = 0;
  int exited = 0;
  int at_barrier = 0, barriers = 0, barrier_result = 0;
  Vote barrier_vote = Vote::none;
  unsigned waiting[kMaxWarps] = {};  // lanes in a meeting of their warp
  unsigned gone[kMaxWarps] = {};     // lanes that have exited or that the block does not have
  Fiber host;                        // who called run_block
  std::string error;
};
Block& running_block();
Thread& running_thread();

// The running thread waits; whoever is runnable goes on. Returns when it was made runnable again.
void wait_for_others();
// Makes the lanes of a warp that are set in `lanes` runnable.
void wake(int warp, unsigned lanes);
// The meeting of `mask` in a warp takes place if all have come (warp.cpp).
void try_meeting(int warp, unsigned mask);
// fail() in the name of a thread that waits, at the place where it does.
[[noreturn]] void fail_for(const Thread& thread, const std::string& text);
// A line for each group of threads: "12 threads (first 0, last 11) wait in __syncthreads at a.cu:5".
std::string who_waits_where();

// Pseudo-random numbers of the option seed, below n.
uint32_t random_below(uint32_t n);
void seed_random(uint64_t seed);

}  // namespace trencadis::cudasim
