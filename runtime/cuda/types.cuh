// Elements on the device: float and __nv_bfloat16 in memory, float in registers; and memory in groups of 16 bytes.
//
// A thread moves a *group* at a time: 4 floats or 8 bf16, one instruction when the address is a multiple of 16. Where
// that is not promised the same group is moved element by element: which thread has which element never depends on
// addresses, so no sum does.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace trencadis {

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

// Rounds to nearest even.
template <typename T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Elements of a group.
template <typename T>
inline constexpr int kGroup = 16 / static_cast<int>(sizeof(T));

// Whether all N rows of C elements start at a multiple of 16 bytes when the first one does.
template <typename T>
bool aligned_rows(int64_t N, int64_t C) {
  return N <= 1 || C % kGroup<T> == 0;
}

// A group of T in memory.
template <typename T>
struct alignas(16) Packed {
  T v[kGroup<T>];
};

// The values of a group of T.
template <typename T>
struct Group {
  float v[kGroup<T>];
};

// p[0 .. kGroup), of which elements outside of [from, to) are `rest` and their memory is not touched. kAligned: p is a
// multiple of 16 bytes.
template <bool kAligned, typename T>
__device__ inline Group<T> load_group(const T* p, int64_t to, float rest = 0.0f, int64_t from = 0) {
  Group<T> group;
  if (kAligned && from <= 0 && to >= kGroup<T>) {
    const Packed<T> packed = *reinterpret_cast<const Packed<T>*>(p);
#pragma unroll
    for (int i = 0; i < kGroup<T>; ++i) group.v[i] = to_float(packed.v[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kGroup<T>; ++i) group.v[i] = from <= i && i < to ? to_float(p[i]) : rest;
  }
  return group;
}

// Writes the elements [from, to) of the group to p[0 .. kGroup).
template <bool kAligned, typename T>
__device__ inline void store_group(T* p, const Group<T>& group, int64_t to, int64_t from = 0) {
  if (kAligned && from <= 0 && to >= kGroup<T>) {
    Packed<T> packed;
#pragma unroll
    for (int i = 0; i < kGroup<T>; ++i) packed.v[i] = from_float<T>(group.v[i]);
    *reinterpret_cast<Packed<T>*>(p) = packed;
  } else {
#pragma unroll
    for (int i = 0; i < kGroup<T>; ++i)
      if (from <= i && i < to) p[i] = from_float<T>(group.v[i]);
  }
}

// This thread's number in the grid, and the number of threads in it; blocks and grid have one dimension.
__device__ inline int64_t grid_thread() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t grid_threads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

}  // namespace trencadis
