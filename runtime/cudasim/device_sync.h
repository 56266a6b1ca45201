// CUDA's built-in functions by which threads wait for each other and exchange values.
#pragma once

#include "runtime/cudasim/block.h"
#include "runtime/cudasim/warp.h"

// The type of the last parameter, which the compiler fills in with the place of the call.
using TrencadisPlace = trencadis::cudasim::Place;

// ---- the block
inline void __syncthreads(TrencadisPlace place = TrencadisPlace::current()) {
  trencadis::cudasim::sync_block(trencadis::cudasim::Vote::none, false, place);
}
inline int __syncthreads_count(int predicate, TrencadisPlace place = TrencadisPlace::current()) {
  return trencadis::cudasim::sync_block(trencadis::cudasim::Vote::count, predicate != 0, place);
}
inline int __syncthreads_and(int predicate, TrencadisPlace place = TrencadisPlace::current()) {
  return trencadis::cudasim::sync_block(trencadis::cudasim::Vote::all, predicate != 0, place);
}
inline int __syncthreads_or(int predicate, TrencadisPlace place = TrencadisPlace::current()) {
  return trencadis::cudasim::sync_block(trencadis::cudasim::Vote::any, predicate != 0, place);
}

// ---- memory order
inline void __threadfence() { trencadis::cudasim::fence(); }
inline void __threadfence_block() { trencadis::cudasim::fence(); }
inline void __threadfence_system() { trencadis::cudasim::fence(); }

// ---- the warp
inline void __syncwarp(unsigned mask = 0xffffffffu, TrencadisPlace place = TrencadisPlace::current()) {
  trencadis::cudasim::meet({.op = trencadis::cudasim::WarpOp::sync, .mask = mask}, place);
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, TrencadisPlace place = TrencadisPlace::current()) {
  return trencadis::cudasim::shuffle(trencadis::cudasim::WarpOp::shuffle, mask, value, lane, width, place);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32,
                 TrencadisPlace place = TrencadisPlace::current()) {
  return trencadis::cudasim::shuffle(trencadis::cudasim::WarpOp::shuffle_up, mask, value, static_cast<int>(distance),
                                     width, place);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32,
                   TrencadisPlace place = TrencadisPlace::current()) {
  return trencadis::cudasim::shuffle(trencadis::cudasim::WarpOp::shuffle_down, mask, value, static_cast<int>(distance),
                                     width, place);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  TrencadisPlace place = TrencadisPlace::current()) {
  return trencadis::cudasim::shuffle(trencadis::cudasim::WarpOp::shuffle_xor, mask, value, lane_mask, width, place);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, TrencadisPlace place = TrencadisPlace::current()) {
  using namespace trencadis::cudasim;
  return static_cast<unsigned>(meet({.op = WarpOp::ballot, .mask = mask, .value = predicate != 0}, place));
}
inline int __any_sync(unsigned mask, int predicate, TrencadisPlace place = TrencadisPlace::current()) {
  return __ballot_sync(mask, predicate, place) != 0;
}
inline int __all_sync(unsigned mask, int predicate, TrencadisPlace place = TrencadisPlace::current()) {
  return __ballot_sync(mask, predicate == 0, place) == 0;
}
template <typename T>
unsigned __match_any_sync(unsigned mask, T value, TrencadisPlace place = TrencadisPlace::current()) {
  using namespace trencadis::cudasim;
  return static_cast<unsigned>(meet({.op = WarpOp::match_any, .mask = mask, .value = to_bits(value)}, place));
}

namespace trencadis::cudasim {
// The hardware reduces 32-bit integers only: unsigned, and int for add, min and max.
template <typename T>
T reduce(WarpOp op, unsigned mask, T value, const Place& place) {
  return from_bits<T>(meet({.op = op, .mask = mask, .value = to_bits(value)}, place));
}
}  // namespace trencadis::cudasim

inline unsigned __reduce_add_sync(unsigned mask, unsigned value, TrencadisPlace place = TrencadisPlace::current()) {
  return trencadis::cudasim::reduce(trencadis::cudasim::WarpOp::reduce_add, mask, value, place);
}
inline int __reduce_add_sync(unsigned mask, int value, TrencadisPlace place = TrencadisPlace::current()) {
  return trencadis::cudasim::reduce(trencadis::cudasim::WarpOp::reduce_add, mask, value, place);
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value, TrencadisPlace place = TrencadisPlace::current()) {
  return trencadis::cudasim::reduce(trencadis::cudasim::WarpOp::reduce_min, mask, value, place);
}
inline int __reduce_min_sync(unsigned mask, int value, TrencadisPlace place = TrencadisPlace::current()) {
  return trencadis::cudasim::reduce(trencadis::cudasim::WarpOp::reduce_min_signed, mask, value, place);
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value, TrencadisPlace place = TrencadisPlace::current()) {
  return trencadis::cudasim::reduce(trencadis::cudasim::WarpOp::reduce_max, mask, value, place);
}
inline int __reduce_max_sync(unsigned mask, int value, TrencadisPlace place = TrencadisPlace::current()) {
  return trencadis::cudasim::reduce(trencadis::cudasim::WarpOp::reduce_max_signed, mask, value, place);
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value, TrencadisPlace place = TrencadisPlace::current()) {
  return trencadis::cudasim::reduce(trencadis::cudasim::WarpOp::reduce_and, mask, value, place);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, TrencadisPlace place = TrencadisPlace::current()) {
  return trencadis::cudasim::reduce(trencadis::cudasim::WarpOp::reduce_or, mask, value, place);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value, TrencadisPlace place = TrencadisPlace::current()) {
  return trencadis::cudasim::reduce(trencadis::cudasim::WarpOp::reduce_xor, mask, value, place);
}
