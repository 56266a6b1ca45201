// Where the arrays of a loop (runtime/loop.h) stand at one of its visits, on the device.
#pragma once

#include <cuda_runtime.h>

#include "runtime/loop.h"

namespace trencadis {

// a / b for numbers that are not negative; 64-bit divisions take five times as long, and few need one.
__device__ inline int64_t quotient(int64_t a, int64_t b) {
  return (a | b) >> 32 ? a / b : static_cast<int64_t>(static_cast<uint32_t>(a) / static_cast<uint32_t>(b));
}

template <int kArrays>
struct Places {
  int64_t at[kArrays];
};

// The elements that the arrays are at in visit number `visit`. The outermost dimension needs no division. Unrolled, so
// that sizes and steps stay where kernel arguments lie.
template <int kArrays>
__device__ inline Places<kArrays> places_of(const BasicLoop<kArrays>& loop, int64_t visit) {
  Places<kArrays> places = {};
#pragma unroll
  for (int d = kMaxRank - 1; d >= 0; --d) {
    if (d < loop.rank) {
      int64_t index = visit;
      if (d > 0) {
        visit = quotient(index, loop.size[d]);
        index -= visit * loop.size[d];
      }
#pragma unroll
      for (int k = 0; k < kArrays; ++k) places.at[k] += index * loop.step[k][d];
    }
  }
  return places;
}

}  // namespace trencadis
