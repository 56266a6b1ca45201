// The operations on one element at a time: y = a op b with broadcasting, and y = op(x). One pair of kernels each.
//
// Saved is what the derivative reads and no more: addition and subtraction save nothing, a product only what the other
// operand's gradient needs, a function of one argument its result or its argument (derivative_reads_result).
#include "autograd/ops/broadcast.h"
#include "autograd/ops/tensor_ops.h"
#include "runtime/context.h"

namespace trencadis {

namespace {

const char* name_of(Binary op) {
  constexpr const char* names[] = {"add", "sub", "mul", "div"};
  return names[static_cast<size_t>(op)];
}
const char* name_of(Unary op) {
  constexpr const char* names[] = {"exp", "log", "sqrt", "tanh", "sigmoid", "relu", "silu", "gelu"};
  return names[static_cast<size_t>(op)];
}

// The operand's values; a number becomes a tensor of shape () beside the other operand.
Tensor values(const Operand& x, const Operand& other) {
  if (x.variable().defined()) return x.variable().value();
  const Tensor& like = other.variable().value();
  Tensor number = Tensor::empty(like.context(), {}, like.dtype(), MemoryCategory::activation, "number");
  like.context().kernels().fill(number, x.number());
  return number;
}

Variable binary(const Operand& x, const Operand& z, Binary op) {
  CHECK(x.variable().defined() || z.variable().defined(), "{}: two numbers; one operand must be a defined variable",
        name_of(op));
  const Tensor a = values(x, z), b = values(z, x);
  const Shape shape = broadcast_shape(name_of(op), a.shape(), b.shape());
  const Loop loop = broadcast_loop(shape, a.shape(), b.shape());
  Context& context = a.context();
  Tensor y = Tensor::empty(context, shape, a.dtype(), MemoryCategory::activation, name_of(op));
  context.kernels().binary(y, a, b, op, loop);

  // d a = dy, dy, dy b, dy / b and d b = dy, -dy, dy a, -dy a / b^2, summed over what was repeated.
  const bool a_needs = x.variable().requires_grad(), b_needs = z.variable().requires_grad();
  const bool linear = op == Binary::add || op == Binary::sub;
  const Tensor saved_a = !linear && b_needs ? a : Tensor();
  const Tensor saved_b = !linear && (a_needs || op == Binary::div) ? b : Tensor();
  auto backward = [=, &context, a_shape = a.shape(), b_shape = b.shape()](Tensors g) -> Tensors {
    const Tensor& dy = g[0];
    const auto view = [](const Tensor& t) { return t.defined() ? ConstView(t) : ConstView(); };
    const auto gradient = [&](int operand, bool needed, const Shape& like) {
      if (!needed) return Tensor();
      const bool passes = op == Binary::add || (op == Binary::sub && operand == 0);
      if (passes && dy.shape() == like) return dy;
      Tensor d = Tensor::empty(context, like, dy.dtype(), MemoryCategory::activation,
                               fmt::format("gradient of {}", name_of(op)));
      context.kernels().binary_backward(d, dy, view(saved_a), view(saved_b), op, operand, loop);
      return d;
    };
    return {gradient(0, a_needs, a_shape), gradient(1, b_needs, b_shape)};
  };
  return record(name_of(op), {x.variable(), z.variable()}, std::move(y), std::move(backward));
}

Variable unary(const Variable& x, Unary op) {
  Context& context = x.value().context();
  Tensor y = Tensor::empty(context, x.value().shape(), x.value().dtype(), MemoryCategory::activation, name_of(op));
  context.kernels().unary(y, x.value(), op);

  auto backward = [=, &context, saved = derivative_reads_result(op) ? y : x.value()](Tensors g) -> Tensors {
    // In place only if nobody else sees dy.
    Tensor dx = g[0].storage().use_count() == 1
                    ? g[0]
                    : Tensor::empty(context, g[0].shape(), g[0].dtype(), MemoryCategory::activation,
                                    fmt::format("dx of {}", name_of(op)));
    context.kernels().unary_backward(dx, g[0], saved, op);
    return {dx};
  };
  return record(name_of(op), {x}, y, std::move(backward));
}

}  // namespace

Variable add(const Operand& a, const Operand& b) { return binary(a, b, Binary::add); }
Variable sub(const Operand& a, const Operand& b) { return binary(a, b, Binary::sub); }
Variable mul(const Operand& a, const Operand& b) { return binary(a, b, Binary::mul); }
Variable div(const Operand& a, const Operand& b) { return binary(a, b, Binary::div); }

Variable exp(const Variable& x) { return unary(x, Unary::exp); }
Variable log(const Variable& x) { return unary(x, Unary::log); }
Variable sqrt(const Variable& x) { return unary(x, Unary::sqrt); }
Variable tanh(const Variable& x) { return unary(x, Unary::tanh); }
Variable sigmoid(const Variable& x) { return unary(x, Unary::sigmoid); }
Variable relu(const Variable& x) { return unary(x, Unary::relu); }
Variable silu(const Variable& x) { return unary(x, Unary::silu); }
Variable gelu(const Variable& x) { return unary(x, Unary::gelu); }

}  // namespace trencadis
