#include "runtime/cpu/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "runtime/check.h"

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>  // also defines __has_feature where the compiler does not
#endif

namespace trencadis {

namespace {
// Tells AddressSanitizer whether the n bytes at p may be used. Does nothing in other builds.
inline void set_usable([[maybe_unused]] bool usable, [[maybe_unused]] const void* p, [[maybe_unused]] int64_t n) {
#if __has_include(<sanitizer/asan_interface.h>)
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
  (usable ? __asan_unpoison_memory_region : __asan_poison_memory_region)(p, static_cast<size_t>(n));
#endif
#endif
}
inline void poison(const void* p, int64_t n) { set_usable(false, p, n); }
inline void unpoison(const void* p, int64_t n) { set_usable(true, p, n); }

constexpr int64_t kAlign = 64;
// Between two blocks: AddressSanitizer reports an access here. It also keeps large powers of two from starting at the
// same offset of a page, which would make them compete for the same cache sets; so every build has it.
constexpr int64_t kRedZone = 64;

// Physical memory bounds what can be alive; twice that leaves room for holes between blocks. 1 TiB at most, because the
// ranks of a test share one address space (and the sanitizers leave less of it).
int64_t wanted_reservation() {
  const int64_t physical = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::clamp<int64_t>(2 * physical, int64_t{1} << 32, int64_t{1} << 40) & ~((int64_t{1} << 21) - 1);
}
}  // namespace

ArenaAllocator::ArenaAllocator(const CpuOptions& options) : misalign_(options.misalign), poison_(options.poison) {
  CHECK(misalign_ >= 0 && misalign_ < kAlign && misalign_ % 4 == 0,
        "CpuOptions::misalign is {}; give a multiple of 4 below {}", misalign_, kAlign);
  for (reserved_ = wanted_reservation();; reserved_ /= 2) {
    CHECK(reserved_ >= (int64_t{1} << 24), "the system gives no address space for an arena (see `ulimit -v`)");
    void* range = mmap(nullptr, static_cast<size_t>(reserved_), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range != MAP_FAILED) {
      base_ = static_cast<char*>(range);
      break;
    }
  }
  // Huge pages, where the system has them: the rows of a matrix product's tile lie kilobytes apart, each in another page
  // of 4 KiB, and looking pages up costs more than reading them (tests/bench/tricks.md has what it costs a step). It is
  // advice: where it is not taken, nothing but time is lost.
  madvise(base_, static_cast<size_t>(reserved_), MADV_HUGEPAGE);
}

ArenaAllocator::~ArenaAllocator() {
  // The sanitizer's shadow outlives the mapping, and these addresses may be somebody else's next.
  unpoison(base_, high_water_);
  munmap(base_, static_cast<size_t>(reserved_));
}

int64_t ArenaAllocator::block_size(int64_t bytes) const {
  return (misalign_ + bytes + kRedZone + kAlign - 1) / kAlign * kAlign;
}

void ArenaAllocator::insert_free(int64_t offset, int64_t size) {
  free_by_offset_.emplace(offset, size);
  free_by_size_.emplace(size, offset);
}

void ArenaAllocator::erase_free(int64_t offset, int64_t size) {
  free_by_offset_.erase(offset);
  free_by_size_.erase({size, offset});
}

int64_t ArenaAllocator::take_block(int64_t size) {
  const auto fit = free_by_size_.lower_bound({size, 0});
  if (fit != free_by_size_.end()) {
    const auto [free_size, offset] = *fit;
    erase_free(offset, free_size);
    if (free_size > size) insert_free(offset + size, free_size - size);
    return offset;
  }
  if (size > reserved_ - extent_) return -1;
  const int64_t offset = extent_;
  extent_ += size;
  if (extent_ > high_water_) {
    poison(base_ + high_water_, extent_ - high_water_);
    high_water_ = extent_;
  }
  return offset;
}

void ArenaAllocator::give_block(int64_t offset, int64_t size) {
  auto next = free_by_offset_.lower_bound(offset);
  if (next != free_by_offset_.begin()) {
    const auto [before, before_size] = *std::prev(next);
    if (before + before_size == offset) {
      erase_free(before, before_size);
      offset = before;
      size += before_size;
    }
  }
  next = free_by_offset_.lower_bound(offset);
  if (next != free_by_offset_.end() && next->first == offset + size) {
    const int64_t next_size = next->second;
    erase_free(offset + size, next_size);
    size += next_size;
  }
  if (offset + size == extent_)
    extent_ = offset;  // its pages stay: the next block at the end gets them
  else
    insert_free(offset, size);
}

void* ArenaAllocator::allocate(int64_t bytes) {
  CHECK(bytes >= 0 && bytes <= reserved_, "an allocation of {} bytes; the arena's address space is {} bytes", bytes,
        reserved_);
  char* data = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const int64_t offset = take_block(block_size(bytes));
    CHECK(offset >= 0,
          "no room for {} bytes: {} blocks are alive in {} bytes of address space; use a smaller model or micro-batch, "
          "or more ranks",
          bytes, live_.size(), reserved_);
    live_.emplace(offset, bytes);
    data = base_ + offset + misalign_;
    unpoison(data, bytes);
  }
  if (poison_) std::memset(data, 0xff, static_cast<size_t>(bytes));
  return data;
}

void ArenaAllocator::free(void* data, int64_t bytes) {
  const int64_t offset = static_cast<char*>(data) - misalign_ - base_;
  const std::lock_guard lock(mutex_);
  const auto block = live_.find(offset);
  CHECK(block != live_.end(), "free of a block of {} bytes that is not alive (freed twice, or of another context)",
        bytes);
  CHECK(block->second == bytes, "free of {} bytes, allocated as {}", bytes, block->second);
  live_.erase(block);
  if (poison_) std::memset(data, 0xff, static_cast<size_t>(bytes));
  poison(data, bytes);
  give_block(offset, block_size(bytes));
}

int64_t ArenaAllocator::extent() const {
  const std::lock_guard lock(mutex_);
  return extent_;
}

int64_t ArenaAllocator::high_water() const {
  const std::lock_guard lock(mutex_);
  return high_water_;
}

}  // namespace trencadis
