#include "autograd/ops/broadcast.h"

#include <algorithm>

namespace trencadis {

Shape broadcast_shape(const char* op, const Shape& a, const Shape& b) {
  const size_t rank = std::max(a.size(), b.size());
  Shape shape(rank);
  for (size_t d = 0; d < rank; ++d) {
    const int64_t l = aligned_size(a, d, rank), r = aligned_size(b, d, rank);
    CHECK(
        l == r || l == 1 || r == 1,
        "{}: shapes {} and {} do not broadcast: counted from the last, dimension {} is {} and {}; sizes must be equal, "
        "or one of them 1",
        op, to_string(a), to_string(b), rank - d, l, r);
    shape[d] = l == 1 ? r : l;
  }
  return shape;
}

Loop broadcast_loop(const Shape& shape, const Shape& a, const Shape& b) {
  const size_t rank = shape.size();
  // Outermost first: from the steps over the whole array to those over its last dimension.
  int64_t a_step = element_count(a), b_step = element_count(b);
  Loop loop;
  for (size_t d = 0; d < rank; ++d) {
    const int64_t l = aligned_size(a, d, rank), r = aligned_size(b, d, rank);
    a_step /= std::max<int64_t>(l, 1);
    b_step /= std::max<int64_t>(r, 1);
    loop.push(shape[d], {l == 1 ? 0 : a_step, r == 1 ? 0 : b_step});
  }
  return loop;
}

size_t axis_index(const char* op, const Shape& shape, int64_t axis) {
  const int64_t rank = static_cast<int64_t>(shape.size());
  CHECK(axis >= -rank && axis < rank, "{}: shape {} has no axis {}; it has axes 0 to {}, or -1 to {}", op,
        to_string(shape), axis, rank - 1, -rank);
  return static_cast<size_t>(axis < 0 ? axis + rank : axis);
}

Axis axis_of(const Shape& shape, size_t axis) {
  Axis seen{1, shape[axis], 1};
  for (size_t d = 0; d < shape.size(); ++d) (d < axis ? seen.outer : seen.inner) *= d == axis ? 1 : shape[d];
  return seen;
}

}  // namespace trencadis
