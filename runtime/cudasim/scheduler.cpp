// How a block runs: threads take turns on one thread of the system.
#include "runtime/cudasim/scheduler.h"

#include <cstring>
#include <map>

#include "runtime/cudasim/sanitizers.h"

// What kernels read (cuda_language.h).
uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace trencadis::cudasim {

uint64_t block_serial = 0;

namespace {

constexpr size_t kStackBytes = 256 * 1024;  // of addresses; memory for what is touched

Block* block = nullptr;
Thread* self = nullptr;
uint64_t random_state = 1;
char fence_token = 0;

// Thrown by fail() to leave the kernel.
struct Abandoned {};

void make_runnable(int number) {
  block->thread(number).state = Thread::State::runnable;
  block->runnable[block->runnable_count++] = number;
}

// The runnable threads are a stack: pushed so that the first in the wanted order is on top.
void make_all_runnable() {
  const int n = block->threads;
  for (int i = 0; i < n; ++i) make_runnable(options().order == Order::reverse ? i : n - 1 - i);
}

// The next thread to run, or null.
Thread* next_thread() {
  if (block->runnable_count == 0) return nullptr;
  int& top = block->runnable[block->runnable_count - 1];
  if (options().order == Order::seeded)
    std::swap(top, block->runnable[random_below(static_cast<uint32_t>(block->runnable_count))]);
  --block->runnable_count;
  return &block->thread(top);
}

void switch_to(Thread* next) {
  Thread* from = self;
  if (next == from) return;
  ++statistics().switches;
  self = next;
  if (next != nullptr) threadIdx = next->index;
  Fiber::switch_to(from == nullptr ? block->host : from->fiber, next == nullptr ? block->host : next->fiber);
}

// The life of a CUDA thread, on its own stack.
void thread_main() {
  Fiber::arrived();
  Thread& me = *self;
  Crew& crew = block->crew;
  acquire(&crew.started);
  acquire(&crew.ended[1 - crew.parity]);
  try {
    (*block->job.kernel)();
    if (me.copy_count > 0) fail(me.place, "the thread exits while asynchronous copies are on their way: wait for them");
    me.state = Thread::State::exited;
    ++block->exited;
    const unsigned lane = 1u << me.lane();
    block->gone[me.warp()] |= lane;
    // Others may have been waiting for this lane to come or to exit.
    for (unsigned left = block->waiting[me.warp()]; left != 0; left &= block->waiting[me.warp()]) {
      const unsigned mask = block->thread(me.warp() * kWarpSize + __builtin_ctz(left)).call.mask;
      left &= ~mask;
      try_meeting(me.warp(), mask);
    }
  } catch (Abandoned&) {
    block->runnable_count = 0;  // and so nobody runs again
  }
  release(&crew.ended[crew.parity]);
  switch_to(next_thread());
  __builtin_unreachable();
}

void prepare(Thread& thread, int number) {
  const dim3& size = blockDim;
  const auto n = static_cast<unsigned>(number);
  thread.number = number;
  thread.index = {n % size.x, n / size.x % size.y, n / (size.x * size.y)};
  thread.copy_count = thread.copy_group = 0;
  thread.place = Place();
  thread.fiber.restart(thread_main);
}

std::string describe(const uint3& index) { return fmt::format("({},{},{})", index.x, index.y, index.z); }

void complete_barrier(const Place& place) {
  int votes = 0;
  for (int i = 0; i < block->threads; ++i) {
    const Thread& other = block->thread(i);
    votes += other.predicate;
    if (!same_place(other.place, place))
      fail(place, fmt::format("threads of one block meet in different barriers: thread {} at {}, this one at {}", i,
                              to_string(other.place), to_string(place)));
  }
  switch (block->barrier_vote) {
    case Vote::none:
      break;
    case Vote::count:
      block->barrier_result = votes;
      break;
    case Vote::all:
      block->barrier_result = votes == block->threads;
      break;
    case Vote::any:
      block->barrier_result = votes > 0;
      break;
  }
  block->at_barrier = 0;
  ++block->barriers;
  ++statistics().barriers;
  make_all_runnable();
}

}  // namespace

Block& running_block() { return *block; }
Thread& running_thread() { return *self; }

void seed_random(uint64_t seed) { random_state = seed * 0x9e3779b97f4a7c15u | 1; }

uint32_t random_below(uint32_t n) {  // Marsaglia's xorshift
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return static_cast<uint32_t>((random_state >> 16) % n);
}

void wait_for_others() { switch_to(next_thread()); }

void wake(int warp, unsigned lanes) {
  block->waiting[warp] &= ~lanes;
  for (int i = 0; i < kWarpSize; ++i) {
    const int lane = options().order == Order::reverse ? i : kWarpSize - 1 - i;
    if (lanes >> lane & 1) make_runnable(warp * kWarpSize + lane);
  }
}

void fail(const Place& place, const std::string& text) {
  self->place = place;
  fail_for(*self, text);
}

void fail_for(const Thread& thread, const std::string& text) {
  const Unseen unseen;
  block->error = fmt::format("thread {}, {}: {}", describe(thread.index), to_string(thread.place), text);
  throw Abandoned{};
}

int sync_block(Vote vote, bool predicate, const Place& place) {
  Thread& me = *self;
  me.state = Thread::State::at_barrier;
  me.place = place;
  me.predicate = predicate;
  char* token = &block->crew.barrier[block->barriers & 1];
  release(token);
  block->barrier_vote = vote;
  if (++block->at_barrier == block->threads) complete_barrier(place);
  wait_for_others();
  acquire(token);
  return block->barrier_result;
}

void fence() {
  release(&fence_token);
  acquire(&fence_token);
}

void copy_async(void* to, const void* from, size_t bytes, const Place& place) {
  Thread& me = *self;
  if (reinterpret_cast<uintptr_t>(to) % bytes != 0 || reinterpret_cast<uintptr_t>(from) % bytes != 0)
    fail(place, fmt::format("an asynchronous copy of {} bytes between addresses that are no multiples of it", bytes));
  if (me.copy_count == Thread::kMaxCopies)
    fail(place, fmt::format("more than {} asynchronous copies of one thread on their way", Thread::kMaxCopies));
  me.place = place;
  std::memset(to, 0xff, bytes);
  me.copies[me.copy_count++] = {to, from, bytes, me.copy_group};
}

void copy_async_commit() { ++self->copy_group; }

void copy_async_wait(int newest) {
  Thread& me = *self;
  int kept = 0;
  for (int i = 0; i < me.copy_count; ++i) {
    const Thread::PendingCopy& copy = me.copies[i];
    if (copy.group < me.copy_group - newest)
      std::memcpy(copy.to, copy.from, copy.bytes);
    else
      me.copies[kept++] = copy;
  }
  me.copy_count = kept;
}

std::string who_waits_where() {
  std::map<std::string, std::vector<int>> groups;
  for (int i = 0; i < block->threads; ++i) {
    const Thread& thread = block->thread(i);
    std::string what = "have exited";
    if (thread.state == Thread::State::at_barrier)
      what = "wait in __syncthreads at " + to_string(thread.place);
    else if (thread.state == Thread::State::in_warp)
      what = fmt::format("wait in {} of the lanes 0x{:08x} at {}", name_of(thread.call.op), thread.call.mask,
                         to_string(thread.place));
    groups[what].push_back(i);
  }
  std::string text;
  for (const auto& [what, threads] : groups)
    text += fmt::format("\n  {} threads (first {}, last {}) {}", threads.size(), threads.front(), threads.back(), what);
  return text;
}

void run_block(Crew& crew, const BlockJob& job) {
  Block state(job, crew);
  state.threads = static_cast<int>(job.block.x * job.block.y * job.block.z);
  for (int i = state.threads; i < (state.threads + kWarpSize - 1) / kWarpSize * kWarpSize; ++i)
    state.gone[i / kWarpSize] |= 1u << i % kWarpSize;
  while (crew.threads.size() < static_cast<size_t>(state.threads))
    crew.threads.push_back(std::make_unique<Thread>(kStackBytes));

  ++block_serial;
  block = &state;
  self = nullptr;
  blockIdx = job.index;
  blockDim = job.block;
  gridDim = job.grid;
  crew.parity = 1 - crew.parity;
  crew.shared.begin_block(job.static_shared_limit, job.dynamic_shared);
  for (int i = 0; i < state.threads; ++i) prepare(state.thread(i), i);
  make_all_runnable();
  switch_to(next_thread());  // returns when nobody can run
  block = nullptr;

  if (state.error.empty() && state.exited < state.threads) {
    block = &state;
    state.error = "threads wait for others that never come; a GPU would hang or go on wrongly:" + who_waits_where();
    block = nullptr;
  }
  if (state.error.empty()) state.error = crew.shared.end_block();
  if (state.error.empty()) return;
  for (const auto& thread : crew.threads) thread->fiber.forget(&crew.ended[crew.parity]);
  throw KernelError(fmt::format("block {}: {}", describe(job.index), state.error));
}

}  // namespace trencadis::cudasim
