// Shared memory of the running block: an arena from which the block's arrays are cut as its threads first touch them.
//
// Poisoned with 0xff: NaN as float or bf16, -1 as an integer, so that what a kernel forgot to initialise shows. Between
// the arrays lie gaps of the same bytes: under AddressSanitizer they may not be touched; elsewhere the end of a block
// looks whether they were written.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "runtime/cudasim/kernel_error.h"

namespace trencadis::cudasim {

// An index into a SharedArray and the place where it is used.
struct Index {
  template <std::integral I>
  Index(I i, Place p = Place::current()) : value(static_cast<int64_t>(i)), place(p) {}
  int64_t value;
  Place place;
};
[[noreturn]] void index_error(const Index& index, int size, size_t element_bytes);

// How many blocks have begun: the running one's number.
extern uint64_t block_serial;

// By this a static variable of a kernel finds its memory in the block that runs.
class SharedSlot {
 public:
  constexpr SharedSlot() = default;
#if defined(__SANITIZE_THREAD__)  // the two variables are the simulator's: ThreadSanitizer must not see them
  void* memory(size_t bytes, const Place& place) { return attach(bytes, place); }
#else
  void* memory(size_t bytes, const Place& place) { return block_ == block_serial ? memory_ : attach(bytes, place); }
#endif

 private:
  void* attach(size_t bytes, const Place& place);

  void* memory_ = nullptr;
  uint64_t block_ = 0;
};

// The running thread's `number`-th piece of the launch's dynamic shared memory.
void* take_dynamic(int number, size_t bytes, const Place& place);

// One arena; a block at a time uses it.
class SharedMemory {
 public:
  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Forgets all arrays. static_limit: bytes that arrays of fixed size may use; dynamic: what the launch gave.
  void begin_block(size_t static_limit, size_t dynamic);
  // Empty, or what is wrong with the gaps between the arrays.
  std::string end_block() const;

  // For SharedSlot and take_dynamic. What is too much is an error of the kernel (fail in block.h).
  void* static_array(size_t bytes, const Place& place);
  void* dynamic_array(int number, size_t bytes, const Place& place);

 private:
  struct Array {
    char* begin;
    size_t bytes;
  };
  static constexpr int kMaxArrays = 128;
  const Array& cut(size_t bytes, const Place& place);

  char* arena_ = nullptr;
  size_t used_ = 0;  // bytes of the arena, gaps included
  size_t static_limit_ = 0, static_bytes_ = 0;
  size_t dynamic_limit_ = 0, dynamic_bytes_ = 0;
  Array arrays_[kMaxArrays];  // in the order of the arena
  int array_count_ = 0;
  int dynamic_[kMaxArrays];  // which of them are the pieces that were taken
  int dynamic_count_ = 0;
};

}  // namespace trencadis::cudasim
