// A tile of an operand on its way to shared memory while threads compute: what rungs 3 and 4 of matrix products share.
#pragma once

#include "device/async_copy.h"
#include "runtime/cuda/types.cuh"

namespace trencadis {

// Starts the copies of rows [row0, row0 + kRows) and columns [k0, k0 + kColumns) of a matrix (rows, K) into `tile`,
// whose rows start kStride elements apart; outside of the matrix the tile becomes 0. 16 bytes a copy where `aligned`
// (every row of the matrix starts at a multiple of 16 bytes) and all of them exist; element by element elsewhere.
// The caller commits, waits, and lets the block meet.
template <int kRows, int kColumns, int kStride, int kThreads, typename T>
__device__ void start_tile(T* tile, const T* matrix, int row0, int k0, int rows, int K, bool aligned) {
  constexpr int kGroups = kColumns / kGroup<T>;
  static_assert(kStride % kGroup<T> == 0, "rows of the tile start at multiples of 16 bytes");
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kGroups; i += kThreads) {
    const int row = i / kGroups, column = i % kGroups * kGroup<T>;
    T* to = tile + row * kStride + column;
    const T* from = matrix + static_cast<int64_t>(row0 + row) * K + k0 + column;
    const int elements = row0 + row < rows ? K - k0 - column : 0;
    if (aligned && elements >= kGroup<T>) {
      copy_async<16>(to, from);
    } else {
      for (int e = 0; e < kGroup<T>; ++e) to[e] = e < elements ? from[e] : from_float<T>(0.0f);
    }
  }
}

}  // namespace trencadis
