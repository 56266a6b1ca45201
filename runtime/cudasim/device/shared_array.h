// The simulator's twin of runtime/cuda/gpu/device/shared_array.h, which says what the classes are for. Here the elements lie
// in the running block's SharedMemory (../shared_memory.h), poisoned when the block first touches them, with gaps between
// the arrays; an index outside is an error that names kernel, block, thread, file and line.
#pragma once

#include "runtime/cudasim/shared_memory.h"

namespace trencadis {

// The object itself is a static variable (cuda_language.h turns __shared__ into static): not the memory, but the key by
// which each block finds its own.
template <typename T, int N>
class SharedArray {
 public:
  T& operator[](cudasim::Index i) {
    if (i.value < 0 || i.value >= N) [[unlikely]]
      cudasim::index_error(i, N, sizeof(T));
    return data(i.place)[i.value];
  }
  const T& operator[](cudasim::Index i) const { return const_cast<SharedArray&>(*this)[i]; }
  T* data(cudasim::Place place = cudasim::Place::current()) {
    return static_cast<T*>(slot_.memory(sizeof(T) * N, place));
  }
  static constexpr int size() { return N; }

 private:
  static_assert(alignof(T) <= 16, "shared arrays are aligned to 16 bytes");
  cudasim::SharedSlot slot_;
};

class DynamicSharedMemory {
 public:
  template <typename T>
  T* take(int count, cudasim::Place place = cudasim::Place::current()) {
    return static_cast<T*>(cudasim::take_dynamic(taken_++, static_cast<size_t>(count) * sizeof(T), place));
  }

 private:
  int taken_ = 0;
};

template <typename T>
constexpr size_t dynamic_shared_bytes(int count) {
  return (static_cast<size_t>(count) * sizeof(T) + 15) / 16 * 16;
}

}  // namespace trencadis
