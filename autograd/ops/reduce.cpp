// y = sum, mean or max of x along an axis, and softmax along one. Backward spreads dy over the axis: to every element,
// or for max to the first that is the largest; max saves x and y for that, sums save nothing. Softmax saves its result.
#include "autograd/ops/broadcast.h"
#include "autograd/ops/tensor_ops.h"
#include "runtime/context.h"

namespace trencadis {

namespace {

Variable reduce(const char* name, const Variable& x, Reduce op, const Axis& axis, Shape shape) {
  CHECK(op != Reduce::max || axis.n > 0, "max: shape {} has no elements along the axis", to_string(x.value().shape()));
  Context& context = x.value().context();
  Tensor y = Tensor::empty(context, std::move(shape), x.value().dtype(), MemoryCategory::activation, name);
  context.kernels().reduce(y, x.value(), op, axis);

  const bool max = op == Reduce::max;
  auto backward = [=, &context, x_shape = x.value().shape(), saved_x = max ? x.value() : Tensor(),
                   saved_y = max ? y : Tensor()](Tensors g) -> Tensors {
    Tensor dx = Tensor::empty(context, x_shape, g[0].dtype(), MemoryCategory::activation, "dx of a reduction");
    const auto view = [](const Tensor& t) { return t.defined() ? ConstView(t) : ConstView(); };
    context.kernels().reduce_backward(dx, g[0], view(saved_x), view(saved_y), op, axis);
    return {dx};
  };
  return record(name, {x}, y, std::move(backward));
}

Variable reduce_axis(const char* name, const Variable& x, Reduce op, int64_t axis, bool keepdim) {
  const Shape& shape = x.value().shape();
  const size_t along = axis_index(name, shape, axis);
  Shape reduced = shape;
  if (keepdim)
    reduced[along] = 1;
  else
    reduced.erase(reduced.begin() + static_cast<std::ptrdiff_t>(along));
  return reduce(name, x, op, axis_of(shape, along), std::move(reduced));
}

Variable reduce_all(const char* name, const Variable& x, Reduce op) {
  return reduce(name, x, op, {1, x.value().size(), 1}, {});
}

Variable softmax_of(const char* name, const Variable& x, int64_t along, bool logarithm) {
  const Axis axis = axis_of(x.value().shape(), axis_index(name, x.value().shape(), along));
  Context& context = x.value().context();
  Tensor y = Tensor::empty(context, x.value().shape(), x.value().dtype(), MemoryCategory::activation, name);
  context.kernels().softmax(y, x.value(), logarithm, axis);

  auto backward = [=, &context](Tensors g) -> Tensors {
    // In place only if nobody else sees dy.
    Tensor dx = g[0].storage().use_count() == 1
                    ? g[0]
                    : Tensor::empty(context, g[0].shape(), g[0].dtype(), MemoryCategory::activation, "dx of softmax");
    context.kernels().softmax_backward(dx, g[0], y, logarithm, axis);
    return {dx};
  };
  return record(name, {x}, y, std::move(backward));
}

}  // namespace

Variable sum(const Variable& x, int64_t axis, bool keepdim) {
  return reduce_axis("sum", x, Reduce::sum, axis, keepdim);
}
Variable mean(const Variable& x, int64_t axis, bool keepdim) {
  return reduce_axis("mean", x, Reduce::mean, axis, keepdim);
}
Variable max(const Variable& x, int64_t axis, bool keepdim) {
  return reduce_axis("max", x, Reduce::max, axis, keepdim);
}
Variable sum(const Variable& x) { return reduce_all("sum", x, Reduce::sum); }
Variable mean(const Variable& x) { return reduce_all("mean", x, Reduce::mean); }
Variable max(const Variable& x) { return reduce_all("max", x, Reduce::max); }

Variable softmax(const Variable& x, int64_t axis) { return softmax_of("softmax", x, axis, false); }
Variable log_softmax(const Variable& x, int64_t axis) { return softmax_of("log_softmax", x, axis, true); }

}  // namespace trencadis
