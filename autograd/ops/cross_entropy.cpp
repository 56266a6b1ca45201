// loss = sum over rows of (log sum_v exp(logits_v) - logits_target). Backward: (softmax - one_hot) dloss, written over
// the logits, the largest activation of a language model, so that they exist once; unless somebody else holds them: the
// op that made them may have saved its result for its own backward.
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

  auto backward = [=, &context, saved = logits.value()](Tensors g) mutable -> Tensors {
    Tensor dlogits = saved;
    if (saved.storage().use_count() > 2) {  // not by these two alone
      dlogits = Tensor::empty(context, saved.shape(), saved.dtype(), MemoryCategory::activation, "dlogits");
      context.kernels().copy(dlogits, saved);
    }
    saved = Tensor();
    context.kernels().softmax_cross_entropy_backward(dlogits, lse, targets, g[0], N, V);
    return {dlogits};
  };
  return record("softmax_cross_entropy", {logits}, std::move(loss), std::move(backward));
}

}  // namespace trencadis
