// ArenaAllocator: the CPU's Allocator, one contiguous range of addresses per context, cut into blocks
// as they are asked for.
//
// Why not malloc: the project predicts memory to the byte and measures it as resident memory, so the allocator must
// hold little more than what is alive at the peak, and a training step must not pay for page faults. malloc gives large
// blocks back to the system and faults them in again each time; the arena keeps them.
//
// How: addresses are reserved once, which costs nothing until they are written. Freed blocks are kept in a list, merged
// with free neighbours; a request takes the smallest free block that is large enough (best fit, the lowest address
// among equals), or else extends the arena at its end. A step that repeats the same requests is served from the list:
// no system call and no page fault.
//
// Invariants: blocks start at multiples of 64 (plus CpuOptions::misalign); the arena's free blocks, live blocks and
// nothing else tile [0, extent()); no two free blocks touch; the last block is never free.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "runtime/allocator.h"
#include "runtime/cpu/backend.h"

namespace trencadis {

// Thread-safe. Errors: Error naming the bytes when a block does not fit; a pointer that is not alive, or freed with
// other bytes than it was allocated with, is an Error too.
class ArenaAllocator final : public Allocator {
 public:
  explicit ArenaAllocator(const CpuOptions& options);
  ~ArenaAllocator() override;
  ArenaAllocator(const ArenaAllocator&) = delete;
  ArenaAllocator& operator=(const ArenaAllocator&) = delete;

  void* allocate(int64_t bytes) override;
  void free(void* data, int64_t bytes) override;

  int64_t reserved() const { return reserved_; }  // bytes of address space
  int64_t extent() const;                         // bytes from the start to the end of the last live block
  int64_t high_water() const;                     // the largest extent so far: an upper bound of resident memory

 private:
  int64_t block_size(int64_t bytes) const;
  int64_t take_block(int64_t size);  // offset of a block of exactly `size` bytes, or -1
  void give_block(int64_t offset, int64_t size);
  void insert_free(int64_t offset, int64_t size);
  void erase_free(int64_t offset, int64_t size);

  const int64_t misalign_;
  const bool poison_;
  char* base_ = nullptr;
  int64_t reserved_ = 0;

  mutable std::mutex mutex_;
  int64_t extent_ = 0, high_water_ = 0;
  std::map<int64_t, int64_t> free_by_offset_;           // offset -> size
  std::set<std::pair<int64_t, int64_t>> free_by_size_;  // (size, offset)
  std::unordered_map<int64_t, int64_t> live_;           // offset -> bytes asked for
};

}  // namespace trencadis
