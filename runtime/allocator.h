// Allocator: where the bytes of a Storage come from. One per Context; the CPU's is an arena (runtime/cpu/arena.h).
#pragma once

#include <cstdint>

namespace trencadis {

class Allocator {
 public:
  virtual ~Allocator() = default;
  // At least `bytes` bytes, aligned to 64; throws Error when the device has no more. Contents are undefined.
  virtual void* allocate(int64_t bytes) = 0;
  // Gives back what allocate(bytes) returned.
  virtual void free(void* data, int64_t bytes) = 0;
};

}  // namespace trencadis
