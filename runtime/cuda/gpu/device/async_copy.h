// Copies from global to shared memory that go on while the thread computes (cp.async, sm_80 and later).
//
//   copy_async<16>(to, from);  ...more...  copy_async_commit();   // what was issued since the last commit is one group
//   copy_async_wait<N>();                                         // all but the thread's newest N groups have arrived
//
// A wait is for the thread's own copies; __syncthreads() after it shows them to the block. BYTES is 4, 8 or 16, and both
// addresses are multiples of it. The simulator's build takes runtime/cudasim/device/async_copy.h instead.
#pragma once

namespace trencadis {

template <int BYTES>
__device__ inline void copy_async(void* shared, const void* global) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(BYTES) : "memory");
}

__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N>
__device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

}  // namespace trencadis
