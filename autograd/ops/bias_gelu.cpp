// y (N,K) = gelu(x + bias). Backward recomputes the tanh from x; dx takes the place of dy.
#include "autograd/ops/ops.h"
#include "runtime/context.h"

namespace trencadis {

Variable bias_gelu(const Variable& x, const Variable& bias) {
  const int64_t K = x.value().dim(-1), N = x.value().size() / K;
  CHECK(bias.value().shape() == Shape({K}), "bias_gelu: bias {} has shape {} for {} features", bias.name(),
        to_string(bias.value().shape()), K);
  Context& context = x.value().context();
  Tensor y = Tensor::empty(context, x.value().shape(), DType::f32, MemoryCategory::activation, "bias_gelu");
  context.kernels().bias_gelu(y, x.value(), bias.value(), N, K);

  auto backward = [=, &context, saved_x = x.value()](Tensors g) -> Tensors {
    // In place only if nobody else sees dy.
    Tensor dx = g[0].storage().use_count() == 1 ? g[0]
                                                : Tensor::empty(context, saved_x.shape(), DType::f32,
                                                                MemoryCategory::activation, "dx of bias_gelu");
    const GradientTarget dbias = Variable(bias).gradient_target();
    context.kernels().bias_gelu_backward(dx, dbias.view, g[0], saved_x, bias.value(), N, K, dbias.accumulate);
    return {dx};
  };
  return record("bias_gelu", {x}, std::move(y), std::move(backward), {bias});
}

}  // namespace trencadis
