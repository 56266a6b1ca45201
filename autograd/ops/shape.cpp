// The same elements in another shape or order: reshape is a view, the others are one strided copy each, forward and
// backward. Nothing is saved but shapes.
#include <numeric>

#include "autograd/ops/broadcast.h"
#include "autograd/ops/tensor_ops.h"
#include "runtime/context.h"

namespace trencadis {

namespace {

Tensor like(const Tensor& x, Shape shape, const char* name) {
  return Tensor::empty(x.context(), std::move(shape), x.dtype(), MemoryCategory::activation, name);
}

// The tensor whose axis i is axis axes[i] of x.
Tensor permuted(const Tensor& x, const std::vector<size_t>& axes, const char* name) {
  const size_t rank = axes.size();
  std::vector<int64_t> steps(rank);  // of x
  for (size_t d = rank, step = 1; d-- > 0; step *= static_cast<size_t>(x.shape()[d]))
    steps[d] = static_cast<int64_t>(step);
  Shape shape(rank);
  for (size_t d = 0; d < rank; ++d) shape[d] = x.shape()[axes[d]];
  Tensor y = like(x, shape, name);
  Loop loop;
  int64_t step = y.size();
  for (size_t d = 0; d < rank && step; ++d) {
    step /= shape[d];
    loop.push(shape[d], {step, steps[axes[d]]});
  }
  if (y.size()) x.context().kernels().copy_strided(y, x, loop);
  return y;
}

// A part of `count` steps along an axis of `whole`, from step `first` on, to the dense tensor `part`, or back.
void copy_part(const Tensor& whole, const Tensor& part, const Axis& axis, int64_t first, int64_t count, bool back) {
  if (part.size() == 0) return;
  const int64_t inner = axis.inner, offset = first * inner;
  const auto rows = [&](int64_t to, int64_t from) {  // elements from one to the next
    Loop loop;
    loop.push(axis.outer, {to, from});
    loop.push(count * inner, {1, 1});
    return loop;
  };
  const View in_whole = whole.view().slice(offset, whole.size() - offset);
  Kernels& kernels = whole.context().kernels();
  if (back)
    kernels.copy_strided(in_whole, part, rows(axis.n * inner, count * inner));
  else
    kernels.copy_strided(part, in_whole, rows(count * inner, axis.n * inner));
}

Variable permute_by(const char* name, const Variable& x, const std::vector<size_t>& axes) {
  std::vector<size_t> inverse(axes.size());
  for (size_t d = 0; d < axes.size(); ++d) inverse[axes[d]] = d;
  auto backward = [=](Tensors g) -> Tensors { return {permuted(g[0], inverse, "dx of a permutation")}; };
  return record(name, {x}, permuted(x.value(), axes, name), std::move(backward));
}

}  // namespace

Variable reshape(const Variable& x, Shape shape) {
  const Shape& before = x.value().shape();
  int64_t known = 1, unknown = 0;
  for (int64_t size : shape) {
    if (size == -1)
      ++unknown;
    else
      known *= size;
  }
  CHECK(unknown <= 1, "reshape: shape {} to {}: at most one size may be -1", to_string(before), to_string(shape));
  CHECK(unknown ? known > 0 && x.value().size() % known == 0 : known == x.value().size(),
        "reshape: shape {} has {} elements, {} has {}{}", to_string(before), x.value().size(), to_string(shape), known,
        unknown ? " for each step of the -1" : "");
  for (int64_t& size : shape)
    if (size == -1) size = x.value().size() / known;
  auto backward = [before](Tensors g) -> Tensors { return {g[0].reshape(before)}; };
  return record("reshape", {x}, x.value().reshape(std::move(shape)), std::move(backward));
}

Variable transpose(const Variable& x, int64_t axis, int64_t other) {
  const Shape& shape = x.value().shape();
  std::vector<size_t> axes(shape.size());
  std::iota(axes.begin(), axes.end(), size_t{0});
  std::swap(axes[axis_index("transpose", shape, axis)], axes[axis_index("transpose", shape, other)]);
  return permute_by("transpose", x, axes);
}

Variable permute(const Variable& x, const std::vector<int64_t>& axes) {
  const Shape& shape = x.value().shape();
  std::vector<size_t> order;
  std::vector<bool> seen(shape.size());
  for (int64_t axis : axes) {
    order.push_back(axis_index("permute", shape, axis));
    CHECK(!seen[order.back()], "permute: axes ({}) name axis {} of shape {} twice", fmt::join(axes, ", "), axis,
          to_string(shape));
    seen[order.back()] = true;
  }
  CHECK(order.size() == shape.size(), "permute: axes ({}) for shape {}: every axis must be named once",
        fmt::join(axes, ", "), to_string(shape));
  return permute_by("permute", x, order);
}

Variable slice(const Variable& x, int64_t axis, int64_t first, int64_t last) {
  Shape shape = x.value().shape();
  const size_t along = axis_index("slice", shape, axis);
  const Axis seen = axis_of(shape, along);
  const int64_t begin = first < 0 ? first + seen.n : first, end = last < 0 ? last + seen.n : last;
  CHECK(0 <= begin && begin <= end && end <= seen.n, "slice: [{}, {}) of axis {} of shape {}, which has {} steps",
        first, last, axis, to_string(shape), seen.n);
  shape[along] = end - begin;
  Tensor y = like(x.value(), shape, "slice");
  copy_part(x.value(), y, seen, begin, end - begin, /*back=*/false);
  auto backward = [=, x_shape = x.value().shape()](Tensors g) -> Tensors {
    Tensor dx = like(g[0], x_shape, "dx of slice");
    dx.context().kernels().zero(dx);
    copy_part(dx, g[0], seen, begin, end - begin, /*back=*/true);
    return {dx};
  };
  return record("slice", {x}, std::move(y), std::move(backward));
}

Variable concat(const std::vector<Variable>& parts, int64_t axis) {
  CHECK(!parts.empty(), "concat: no parts");
  Shape shape = parts[0].value().shape();
  const size_t along = axis_index("concat", shape, axis);
  std::vector<int64_t> counts;
  for (const Variable& part : parts) {
    Shape other = part.value().shape();
    CHECK(other.size() == shape.size(), "concat: shapes {} and {} have other numbers of dimensions",
          to_string(parts[0].value().shape()), to_string(other));
    counts.push_back(other[along]);
    other[along] = parts[0].value().shape()[along];
    CHECK(other == parts[0].value().shape(), "concat: shapes {} and {} differ in more than axis {}",
          to_string(parts[0].value().shape()), to_string(part.value().shape()), axis);
  }
  shape[along] = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const Axis seen = axis_of(shape, along);
  const Tensor y = like(parts[0].value(), shape, "concat");
  int64_t first = 0;
  for (size_t i = 0; i < parts.size(); first += counts[i++])
    copy_part(y, parts[i].value(), seen, first, counts[i], /*back=*/true);

  std::vector<bool> needed;
  for (const Variable& part : parts) needed.push_back(part.requires_grad());
  auto backward = [=](Tensors g) -> Tensors {
    Tensors gradients(counts.size());
    int64_t begin = 0;
    for (size_t i = 0; i < counts.size(); begin += counts[i++]) {
      if (!needed[i]) continue;
      Shape part = shape;
      part[along] = counts[i];
      gradients[i] = like(g[0], part, "dx of concat");
      copy_part(g[0], gradients[i], seen, begin, counts[i], /*back=*/false);
    }
    return gradients;
  };
  return record("concat", parts, y, std::move(backward));
}

}  // namespace trencadis
