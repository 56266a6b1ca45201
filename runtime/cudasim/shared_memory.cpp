// The arena of shared memory.
#include "runtime/cudasim/shared_memory.h"

#include <sys/mman.h>

#include "runtime/cudasim/block.h"
#include "runtime/cudasim/sanitizers.h"
#include "runtime/cudasim/scheduler.h"

namespace trencadis::cudasim {

namespace {

constexpr size_t kArenaBytes = 512 * 1024;  // 227 KiB of arrays, and their gaps
constexpr size_t kGap = 64;
constexpr size_t kAlignment = 16;
constexpr unsigned char kPoison = 0xff;

// By single stores: ThreadSanitizer would see a memset, and take it for a thread's.
void poison(char* begin, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) const_cast<volatile char*>(begin)[i] = static_cast<char>(kPoison);
}

}  // namespace

void index_error(const Index& index, int size, size_t element_bytes) {
  fail(index.place, fmt::format("index {} of a SharedArray that has 0 to {} (elements of {} bytes)", index.value,
                                size - 1, element_bytes));
}

void* SharedSlot::attach(size_t bytes, const Place& place) {
  if (block_ != block_serial) {
    memory_ = running_block().crew.shared.static_array(bytes, place);
    block_ = block_serial;
  }
  return memory_;
}

void* take_dynamic(int number, size_t bytes, const Place& place) {
  return running_block().crew.shared.dynamic_array(number, bytes, place);
}

SharedMemory::SharedMemory() {
  void* memory = mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED, "no memory for the shared memory of a block");
  arena_ = static_cast<char*>(memory);
}

SharedMemory::~SharedMemory() {
  allow(arena_, kArenaBytes);
  munmap(arena_, kArenaBytes);
}

void SharedMemory::begin_block(size_t static_limit, size_t dynamic) {
  forbid(arena_, kArenaBytes);
  static_limit_ = static_limit;
  dynamic_limit_ = dynamic;
  used_ = static_bytes_ = dynamic_bytes_ = 0;
  array_count_ = dynamic_count_ = 0;
}

std::string SharedMemory::end_block() const {
  if (kAddressSanitizer) return "";
  for (int i = 0; i < array_count_; ++i) {
    const Array& array = arrays_[i];
    for (const char* gap : {array.begin - kGap, array.begin + array.bytes})
      for (size_t k = 0; k < kGap; ++k)
        if (static_cast<unsigned char>(gap[k]) != kPoison)
          return fmt::format("a thread wrote outside of a shared array of {} bytes, {} bytes {}", array.bytes,
                             gap < array.begin ? kGap - k : k,
                             gap < array.begin ? "before its begin" : "behind its end");
  }
  return "";
}

// The gap behind one array is followed by the one before the next.
const SharedMemory::Array& SharedMemory::cut(size_t bytes, const Place& place) {
  const size_t begin = (used_ + kGap + kAlignment - 1) / kAlignment * kAlignment;
  if (array_count_ == kMaxArrays || begin + bytes + kGap > kArenaBytes)
    fail(place, fmt::format("more than {} shared arrays, or {} bytes of them", kMaxArrays, kArenaBytes));
  used_ = begin + bytes + kGap;
  Array& array = arrays_[array_count_++];
  array = {arena_ + begin, bytes};
  if (kAddressSanitizer) {
    allow(array.begin, bytes);
    poison(array.begin, bytes);
  } else {
    poison(array.begin - kGap, bytes + 2 * kGap);
  }
  return array;
}

void* SharedMemory::static_array(size_t bytes, const Place& place) {
  static_bytes_ += bytes;
  if (static_bytes_ > static_limit_)
    fail(place, fmt::format("{} bytes of shared arrays where {} are left (a launch that gives {} dynamic bytes)",
                            static_bytes_, static_limit_, dynamic_limit_));
  return cut(bytes, place).begin;
}

void* SharedMemory::dynamic_array(int number, size_t bytes, const Place& place) {
  if (number < dynamic_count_) {  // another thread took it first
    const Array& array = arrays_[dynamic_[number]];
    if (array.bytes != bytes)
      fail(place, fmt::format("piece {} of dynamic shared memory has {} bytes in this thread and {} in another", number,
                              bytes, array.bytes));
    return array.begin;
  }
  dynamic_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (dynamic_bytes_ > dynamic_limit_)
    fail(place, fmt::format("the kernel takes {} bytes of dynamic shared memory, its launch gave {} (dynamicSmemBytes)",
                            dynamic_bytes_, dynamic_limit_));
  const Array& array = cut(bytes, place);
  dynamic_[dynamic_count_++] = array_count_ - 1;
  return array.begin;
}

}  // namespace trencadis::cudasim
