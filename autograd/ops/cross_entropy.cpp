// loss = sum over rows of (log sum_v exp(logits_v) - logits_target). Backward: (softmax - one_hot) dloss, written over
// the logits, the largest activation of a language model, so that they exist once; but for logits that somebody else
// holds: the caller, or the operation that made them and reads its result in backward (tanh does).
#include "autograd/ops/ops.h"
#include "runtime/context.h"

namespace trencadis {

Variable softmax_cross_entropy(const Variable& logits, const Tensor& targets, const Tensor& totals) {
  const int64_t V = logits.value().dim(-1), N = logits.value().size() / V;
  CHECK(targets.size() == N, "softmax_cross_entropy: logits {} and targets {}", to_string(logits.value().shape()),
        to_string(targets.shape()));
  Context& context = logits.value().context();
  Tensor loss = Tensor::empty(context, {1}, DType::f32, MemoryCategory::activation, "loss");
  const Tensor lse = Tensor::empty(context, {N}, DType::f32, MemoryCategory::activation, "log-sum-exp of logits");
  const Tensor sums = totals.defined() ? totals : Tensor::zeros(context, {kLossWords}, DType::i64);
  context.kernels().softmax_cross_entropy(loss, lse, sums, logits.value(), targets, N, V);

  auto backward = [=, &context, saved = logits.value()](Tensors g) -> Tensors {
    Tensor d = saved;
    if (saved.storage().use_count() > 2) {  // saved and d
      d = Tensor::empty(context, saved.shape(), saved.dtype(), MemoryCategory::activation, "gradient of logits");
      context.kernels().copy(d, saved);
    }
    context.kernels().softmax_cross_entropy_backward(d, lse, targets, g[0], N, V);
    return {d};
  };
  return record("softmax_cross_entropy", {logits}, std::move(loss), std::move(backward));
}

}  // namespace trencadis
