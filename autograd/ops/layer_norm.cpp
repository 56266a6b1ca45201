// y = (x - mean) rstd gamma + beta over the last dimension, alone or behind a residual addition s = x + r.
// Backward recomputes (x - mean) rstd from the saved input and the two saved numbers per row; a residual addition
// passes its gradient, ds + dnorm, to both of its inputs.
#include "autograd/ops/ops.h"
#include "runtime/context.h"

namespace trencadis {

namespace {

void check_norm(const char* op, const Variable& x, const Variable& gamma, const Variable& beta) {
  const Shape expected = {x.value().dim(-1)};
  CHECK(gamma.value().shape() == expected && beta.value().shape() == expected,
        "{}: gamma {} and beta {} for an input of shape {}", op, to_string(gamma.value().shape()),
        to_string(beta.value().shape()), to_string(x.value().shape()));
}

// The kernel has one flag for both: where only one of them was written before (a gamma that two norms share, each with
// its own beta), the other starts from zero.
void norm_backward(View dx, const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd, Variable gamma,
                   Variable beta, ConstView dresidual) {
  const int64_t C = x.dim(-1), N = x.size() / C;
  const GradientTarget dgamma = gamma.gradient_target(), dbeta = beta.gradient_target();
  Kernels& kernels = x.context().kernels();
  const bool accumulate = dgamma.accumulate || dbeta.accumulate;
  for (const GradientTarget& target : {dgamma, dbeta})
    if (accumulate && target.view && !target.accumulate) kernels.zero(target.view);
  kernels.layer_norm_backward(dx, dgamma.view, dbeta.view, dy, x, mean, rstd, gamma.value(), dresidual, N, C,
                              accumulate);
}

}  // namespace

Variable layer_norm(const Variable& x, const Variable& gamma, const Variable& beta, float eps) {
  check_norm("layer_norm", x, gamma, beta);
  const int64_t C = x.value().dim(-1), N = x.value().size() / C;
  Context& context = x.value().context();
  Tensor y = Tensor::empty(context, x.value().shape(), DType::f32, MemoryCategory::activation, "layer_norm");
  const Tensor mean = Tensor::empty(context, {N}), rstd = Tensor::empty(context, {N});
  context.kernels().layer_norm(y, mean, rstd, x.value(), gamma.value(), beta.value(), N, C, eps);

  auto backward = [=, &context, saved_x = x.value()](Tensors g) -> Tensors {
    Tensor dx = Tensor::empty(context, saved_x.shape(), DType::f32, MemoryCategory::activation, "dx of layer_norm");
    norm_backward(dx, g[0], saved_x, mean, rstd, gamma, beta, {});
    return {dx};
  };
  return record("layer_norm", {x}, std::move(y), std::move(backward), {gamma, beta});
}

ResidualNorm residual_layer_norm(const Variable& x, const Variable& r, const Variable& gamma, const Variable& beta,
                                 float eps) {
  check_norm("residual_layer_norm", x, gamma, beta);
  CHECK(x.value().shape() == r.value().shape(), "residual_layer_norm: shapes {} and {}", to_string(x.value().shape()),
        to_string(r.value().shape()));
  const int64_t C = x.value().dim(-1), N = x.value().size() / C;
  Context& context = x.value().context();
  Tensor s = Tensor::empty(context, x.value().shape(), DType::f32, MemoryCategory::activation, "residual");
  Tensor y = Tensor::empty(context, x.value().shape(), DType::f32, MemoryCategory::activation, "layer_norm");
  const Tensor mean = Tensor::empty(context, {N}), rstd = Tensor::empty(context, {N});
  context.kernels().residual_layer_norm(s, y, mean, rstd, x.value(), r.value(), gamma.value(), beta.value(), N, C, eps);

  auto backward = [=, &context, saved_s = s](Tensors g) -> Tensors {
    if (!g[1].defined()) return {g[0], g[0]};  // the normed output was not used
    Tensor dx = Tensor::empty(context, saved_s.shape(), DType::f32, MemoryCategory::activation, "dx of layer_norm");
    norm_backward(dx, g[1], saved_s, mean, rstd, gamma, beta, g[0].defined() ? ConstView(g[0]) : ConstView());
    return {dx, dx};
  };
  auto outputs = Node::record("residual_layer_norm", {x, r}, {s, y}, std::move(backward), {gamma, beta});
  return {outputs[0], outputs[1]};
}

}  // namespace trencadis
