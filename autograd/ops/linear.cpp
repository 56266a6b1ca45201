// y (N,K) = x (N,C) w^T + b. Backward: dx = dy w, dw = dy^T x, db = sum_N dy.
#include "autograd/ops/ops.h"
#include "runtime/context.h"

namespace trencadis {

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  const int64_t C = x.value().dim(-1), K = weight.value().dim(0), N = x.value().size() / std::max<int64_t>(C, 1);
  CHECK(weight.value().shape() == Shape({K, C}), "linear: weight {} has shape {}, the input {}", weight.name(),
        to_string(weight.value().shape()), to_string(x.value().shape()));
  CHECK(!bias.defined() || bias.value().shape() == Shape({K}), "linear: bias {} has shape {} for {} outputs",
        bias.name(), to_string(bias.value().shape()), K);
  Shape shape = x.value().shape();
  shape.back() = K;
  Context& context = x.value().context();
  Tensor y = Tensor::empty(context, shape, DType::f32, MemoryCategory::activation, "linear");
  context.kernels().linear(y, x.value(), weight.value(), bias.defined() ? ConstView(bias.value()) : ConstView(), N, C,
                           K);

  // The weight's gradient needs x, the input's needs the weight; each is saved only if it will be used.
  const Tensor saved_x = weight.requires_grad() ? x.value() : Tensor();
  auto backward = [=, &context, x_needs = x.requires_grad(),
                   x_shape = x.value().shape()](Tensors g) mutable -> Tensors {
    Kernels& kernels = context.kernels();
    const Tensor dy = std::move(g[0]);
    if (bias.requires_grad()) {
      const GradientTarget db = Variable(bias).gradient_target();
      kernels.bias_backward(db.view, dy, N, K, db.accumulate);
    }
    if (weight.requires_grad()) {
      const GradientTarget dw = Variable(weight).gradient_target();
      kernels.matmul(dw.view, dy, saved_x, K, C, N, /*trans_a=*/true, /*trans_b=*/false, dw.accumulate);
    }
    if (!x_needs) return {Tensor()};
    Tensor dx = Tensor::empty(context, x_shape, DType::f32, MemoryCategory::activation, "dx of linear");
    kernels.matmul(dx, dy, weight.value(), N, C, K, false, false, false);
    return {dx};
  };
  return record("linear", {x}, std::move(y), std::move(backward), {weight, bias});
}

}  // namespace trencadis
