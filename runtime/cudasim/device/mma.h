// The simulator's twin of runtime/cuda/gpu/device/mma.h, which shows how the fragments lie in the lanes. The lanes of a warp
// meet, and the engine (../warp.cpp) gathers the matrices from their registers, multiplies, and hands the parts out.
#pragma once

#include <bit>
#include <cstdint>

#include "runtime/cudasim/warp.h"

namespace trencadis {

inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4],
                         cudasim::Place place = cudasim::Place::current()) {
  cudasim::mma(cudasim::WarpOp::mma_bf16, {d, a, b, c}, place);
}

inline void mma_m16n8k8(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4],
                        cudasim::Place place = cudasim::Place::current()) {
  cudasim::mma(cudasim::WarpOp::mma_tf32, {d, a, b, c}, place);
}

// To nearest, ties away from zero: half a unit of the last kept bit is added to the magnitude. Inf stays inf.
inline uint32_t to_tf32(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (x != x) return 0x7fffffffu;
  return ((bits & 0x7f800000u) == 0x7f800000u ? bits : bits + 0x1000u) & 0xffffe000u;
}

}  // namespace trencadis
