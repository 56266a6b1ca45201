// Loop: the sizes of a loop over elements, and how arrays are walked in it. What broadcasts, transposes, slices and
// reduces is a loop of this kind.
//
// Tensors are contiguous. Steps exist only here, for one kernel call: an array that is repeated along a dimension has
// step 0 there, one that is transposed has its steps exchanged. push() merges dimensions that are walked like one, so
// that two arrays of the same shape are one dimension, whatever their rank, and kernels run along long rows.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/check.h"

namespace trencadis {

inline constexpr int kMaxRank = 6;  // dimensions that cannot be merged

template <int kArrays>
struct BasicLoop {
  int rank = 0;
  int64_t size[kMaxRank] = {};           // outermost first
  int64_t step[kArrays][kMaxRank] = {};  // elements of an array from one step to the next; 0: the same element again

  // Adds a dimension inside of the others.
  void push(int64_t n, const std::array<int64_t, kArrays>& steps) {
    if (n == 1) return;
    bool merges = rank > 0;
    for (int k = 0; k < kArrays; ++k) merges = merges && step[k][rank - 1] == steps[static_cast<size_t>(k)] * n;
    CHECK(merges || rank < kMaxRank, "a loop over more than {} dimensions that cannot be merged; reshape first",
          kMaxRank);
    if (!merges) size[rank++] = 1;
    size[rank - 1] *= n;
    for (int k = 0; k < kArrays; ++k) step[k][rank - 1] = steps[static_cast<size_t>(k)];
  }

  // Elements that the loop visits.
  int64_t count() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= size[d];
    return n;
  }
  // Elements from the first to the last that array k is read or written at.
  int64_t span(int k) const {
    int64_t last = 0;
    for (int d = 0; d < rank; ++d) last += (size[d] - 1) * step[k][d];
    return count() ? last + 1 : 0;
  }
};

// A loop over two arrays; a third one, if there is one, is dense in the loop's own order.
using Loop = BasicLoop<2>;

// A loop with its dimensions parted: an operand lies along `kept`, its gradient is a sum along `summed`. Array 0 is the
// dense one, 1 and 2 are the two of the loop.
struct PartedLoop {
  BasicLoop<3> kept, summed;
};
inline PartedLoop part(const Loop& loop, int operand) {
  int64_t dense[kMaxRank] = {}, inside = 1;
  for (int d = loop.rank - 1; d >= 0; inside *= loop.size[d--]) dense[d] = inside;
  PartedLoop parted;
  for (int d = 0; d < loop.rank; ++d)
    (loop.step[operand][d] ? parted.kept : parted.summed)
        .push(loop.size[d], {dense[d], loop.step[0][d], loop.step[1][d]});
  return parted;
}

// An array seen as (outer, n, inner), where something happens along n.
struct Axis {
  int64_t outer = 1, n = 1, inner = 1;

  int64_t rows() const { return outer * inner; }
  int64_t count() const { return outer * n * inner; }
};
// The same for a sum along n. Array 0 is the one that is summed.
inline PartedLoop part(const Axis& axis) {
  PartedLoop parted;
  parted.kept.push(axis.outer, {axis.n * axis.inner, 0, 0});
  parted.kept.push(axis.inner, {1, 0, 0});
  parted.summed.push(axis.n, {axis.inner, 0, 0});
  return parted;
}

}  // namespace trencadis
