// The simulator's twin of runtime/cuda/gpu/device/async_copy.h. A copy lands as late as the hardware may let it land: at the
// wait that orders it. Until then its target holds poison, so a wait for one group too few gives NaN, always.
#pragma once

#include "runtime/cudasim/block.h"

namespace trencadis {

template <int BYTES>
void copy_async(void* shared, const void* global, cudasim::Place place = cudasim::Place::current()) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
  cudasim::copy_async(shared, global, BYTES, place);
}

inline void copy_async_commit() { cudasim::copy_async_commit(); }

template <int N>
void copy_async_wait() {
  cudasim::copy_async_wait(N);
}

}  // namespace trencadis
