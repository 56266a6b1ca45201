// Shared memory as classes: an array whose size is part of its type, and a carver for the part that the launch sizes.
//
// A kernel includes "device/shared_array.h" and gets this file from nvcc, and runtime/cudasim's, which checks every
// index, from the simulator's build: the include path chooses. Both have the same members. Every array starts at a
// multiple of 16 bytes at least, so that it may be read as float4.
#pragma once

#include <cstddef>

namespace trencadis {

// __shared__ SharedArray<float, 32> sums;  Not initialised, as all shared memory. T: plain data.
template <typename T, int N>
class SharedArray {
 public:
  __device__ T& operator[](int i) { return elements_[i]; }
  __device__ const T& operator[](int i) const { return elements_[i]; }
  __device__ T* data() { return elements_; }
  static constexpr __host__ __device__ int size() { return N; }

 private:
  alignas(alignof(T) < 16 ? 16 : alignof(T)) T elements_[N];
};

// The bytes that the launch asked for (dynamicSmemBytes), handed out piece by piece. All threads of a block take the same
// pieces in the same order. A piece of n elements uses dynamic_shared_bytes<T>(n).
class DynamicSharedMemory {
 public:
  __device__ DynamicSharedMemory() {
    extern __shared__ __align__(16) unsigned char trencadis_dynamic_shared_memory[];
    next_ = trencadis_dynamic_shared_memory;
  }
  template <typename T>
  __device__ T* take(int count) {
    T* piece = reinterpret_cast<T*>(next_);
    next_ += (static_cast<size_t>(count) * sizeof(T) + 15) / 16 * 16;
    return piece;
  }

 private:
  unsigned char* next_;
};

// What take<T>(count) uses of the launch's bytes.
template <typename T>
constexpr __host__ __device__ size_t dynamic_shared_bytes(int count) {
  return (static_cast<size_t>(count) * sizeof(T) + 15) / 16 * 16;
}

}  // namespace trencadis
