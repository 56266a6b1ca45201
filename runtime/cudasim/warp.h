// Where the lanes of a warp meet: __syncwarp, shuffles, votes, reductions, tensor-core products.
//
// Every lane that the mask names has to come with the same mask to the same call; the last one computes the results of all.
// Checked: the caller is in its own mask, a lane that is read is in the mask and has not exited, all are at one place.
// Only __syncwarp orders memory; ThreadSanitizer holds a kernel to that.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "runtime/cudasim/kernel_error.h"

namespace trencadis::cudasim {

enum class WarpOp {
  sync,
  shuffle,  // from lane `operand` of the segment
  shuffle_up,
  shuffle_down,
  shuffle_xor,
  ballot,
  match_any,
  reduce_add,
  reduce_min,
  reduce_max,
  reduce_min_signed,
  reduce_max_signed,
  reduce_and,
  reduce_or,
  reduce_xor,
  mma_bf16,
  mma_tf32,
};
const char* name_of(WarpOp op);

// What a lane brings, and takes away in `result`.
struct WarpCall {
  WarpOp op = WarpOp::sync;
  unsigned mask = 0;
  uint64_t value = 0;  // shuffles and reductions: the bytes of the lane's value
  int operand = 0;     // shuffles: lane, distance or lane mask
  int width = 32;      // shuffles: lanes of a segment
  const void* fragments = nullptr;
  uint64_t result = 0;
};

// The running lane waits here for the others.
uint64_t meet(WarpCall call, const Place& place);

// The lanes' registers in a tensor-core product.
struct Fragments {
  float (&d)[4];
  const uint32_t (&a)[4];
  const uint32_t (&b)[2];
  const float (&c)[4];
};
void mma(WarpOp op, const Fragments& fragments, const Place& place);

// A value of up to 8 bytes as a number, and back.
template <typename T>
uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "lanes exchange plain values of up to 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const void*>(&value), sizeof value);
  return bits;
}
template <typename T>
T from_bits(uint64_t bits) {
  T value;
  std::memcpy(static_cast<void*>(&value), &bits, sizeof value);
  return value;
}

template <typename T>
T shuffle(WarpOp op, unsigned mask, T value, int operand, int width, const Place& place) {
  return from_bits<T>(
      meet({.op = op, .mask = mask, .value = to_bits(value), .operand = operand, .width = width}, place));
}

}  // namespace trencadis::cudasim
