// Shapes that broadcast, and axes: what the general operations share.
#pragma once

#include "runtime/loop.h"
#include "runtime/tensor.h"

namespace trencadis {

// Size d of a shape that is aligned at the last of `rank` dimensions; 1 where it has none.
inline int64_t aligned_size(const Shape& shape, size_t d, size_t rank) {
  return d + shape.size() < rank ? 1 : shape[d + shape.size() - rank];
}

// The shape that a and b broadcast to; throws Error with both.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b);

// The loop over `shape` that walks a and b, which broadcast to it.
Loop broadcast_loop(const Shape& shape, const Shape& a, const Shape& b);

// The axis as an index from 0; throws Error that prints the shape.
size_t axis_index(const char* op, const Shape& shape, int64_t axis);

// `shape` as (outer, n, inner) around one axis; as (1, all, 1) it is a reduction over everything.
Axis axis_of(const Shape& shape, size_t axis);

}  // namespace trencadis
