// What a running CUDA thread asks of its block: barriers, fences, asynchronous copies. The other side, which decides who
// runs when, is scheduler.h.
#pragma once

#include <cstddef>
#include <string>

#include "runtime/cudasim/kernel_error.h"

namespace trencadis::cudasim {

// __syncthreads and its kin: all threads of the block come here, and every one gets the result of the vote. A thread that
// has exited never comes: that is an error, as in NVIDIA's synccheck.
enum class Vote { none, count, all, any };
int sync_block(Vote vote, bool predicate, const Place& place);

// __threadfence. Threads take turns here, so that memory is always in order; but ThreadSanitizer learns that what was done
// before one thread's fence happens before what another does after a later fence.
void fence();

// See device/async_copy.h.
void copy_async(void* to, const void* from, size_t bytes, const Place& place);
void copy_async_commit();
void copy_async_wait(int newest);

// Ends the running thread and with it the grid: run_grid throws KernelError with this text, kernel, block, thread, place.
[[noreturn]] void fail(const Place& place, const std::string& text);

}  // namespace trencadis::cudasim
