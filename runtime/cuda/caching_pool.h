// CachingPool: device memory for one stream, without asking the device each time.
//
// Why: cudaMalloc takes tens of microseconds and cudaFree waits for the whole device; a training step takes and returns
// hundreds of blocks. The pool keeps what is freed and hands it out again.
//
// Stream order. The host allocates and frees in the order of its program, long before the kernels run. A pool belongs to
// one stream, the owner. A block that was freed may be handed out at once, while kernels that use it are still queued:
// whatever the owner is given afterwards runs after them. So the rule for everyone is:
//
//   all use of a block is ordered, on the device, after what the owner was given before allocate()
//   and before what the owner is given after free().
//
// On the owner itself that holds by itself. Another stream that uses the block must be bracketed by two events:
//
//   owner    ... last use of the old block | free, allocate | record A . . . . . wait B | free ... next use
//   other                                                     wait A, use, record B
//
// ZeRO does that. Stage 3 takes the buffer of a unit's parameters, then the gather stream waits for an event of the compute
// stream and fills it; the compute stream waits for the gather's event before its kernels read, and before it releases the
// buffer. Gradients that are being reduced are released by finish_reduction() after the compute stream waited for the
// reduction. Without wait A, the gather could overwrite what kernels of the old block still read; without wait B, kernels
// of the next block could overwrite what the reduction still reads. Tests plant both mistakes.
//
// Sizes: up to 1 MiB a block is rounded up to one of 8 sizes per doubling (at least 512 bytes) and cut from a slab of
// 2 MiB, the unit in which the driver maps memory; a larger one is rounded up to that unit and is a slab of its own. Blocks
// start at multiples of 512 bytes. The MemoryTracker counts what was asked for, as on the CPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/device.h"

namespace trencadis {

class CachingPool;

// The pools of one device: when one finds no memory, all give back what they keep.
class PoolGroup {
 public:
  explicit PoolGroup(Device device) : device_(device) {}
  PoolGroup(const PoolGroup&) = delete;
  PoolGroup& operator=(const PoolGroup&) = delete;

 private:
  friend class CachingPool;
  void* get(int64_t bytes);  // from the device; throws Error when it has no more

  const Device device_;
  std::mutex mutex_;  // of all pools
  std::vector<CachingPool*> pools_;
};

class CachingPool final : public Allocator {
 public:
  struct Options {
    // For tests. Every block arrives as NaN, written in the order of the owner.
    bool poison = false;
    // For tests with AddressSanitizer: a block is what was asked for, to the byte, and a slab of its own.
    bool exact = false;
  };
  struct Statistics {
    int64_t in_use = 0;  // bytes of blocks handed out, rounded up
    int64_t cached = 0;  // bytes of the other blocks
    int64_t slabs = 0, device_allocations = 0;
  };

  CachingPool(PoolGroup& group, cudaStream_t owner, Options options);
  ~CachingPool() override;  // all blocks are back
  CachingPool(const CachingPool&) = delete;
  CachingPool& operator=(const CachingPool&) = delete;

  // Thread-safe, all of them. Errors: Error when the device has no more; a block that is not alive, or freed with another
  // size.
  void* allocate(int64_t bytes) override;
  void free(void* data, int64_t bytes) override;
  void release_cached();  // back to the device; waits until the device is idle
  Statistics statistics() const;

  // What a request is rounded up to.
  static int64_t block_size(int64_t bytes);

 private:
  friend class PoolGroup;
  struct Slab {
    void* data = nullptr;
    int64_t block_bytes = 0, blocks = 0, live = 0;
  };
  struct Block {
    void* data = nullptr;
    Slab* slab = nullptr;
    int64_t asked = 0;
  };
  void add_slab(int64_t block_bytes);
  void release_cached_locked();

  PoolGroup& group_;
  const cudaStream_t owner_;
  const Options options_;
  std::list<Slab> slabs_;
  std::map<int64_t, std::vector<Block>> free_;  // by size of block; the last freed is the next given
  std::unordered_map<void*, Block> live_;
  Statistics statistics_;
};

}  // namespace trencadis
