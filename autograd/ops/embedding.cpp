// y (B,T,C) = wte[ids] + wpe[t]. Backward scatters dy into both tables and reads neither.
#include "autograd/ops/ops.h"
#include "runtime/context.h"

namespace trencadis {

Variable embedding(const Tensor& ids, const Variable& wte, const Variable& wpe) {
  const int64_t B = ids.dim(0), T = ids.dim(1), V = wte.value().dim(0), C = wte.value().dim(1);
  const int64_t positions = wpe.value().dim(0);
  CHECK(wpe.value().dim(1) == C, "embedding: {} has {} channels, {} has {}", wte.name(), C, wpe.name(),
        wpe.value().dim(1));
  CHECK(T <= positions, "embedding: a sequence of {} tokens, but {} positions; shorten it or raise block_size", T,
        positions);
  Context& context = ids.context();
  Tensor y = Tensor::empty(context, {B, T, C}, DType::f32, MemoryCategory::activation, "embedding");
  context.kernels().embedding(y, ids, wte.value(), wpe.value(), B, T, C, V);

  auto backward = [=, &context](Tensors g) -> Tensors {
    const GradientTarget dwte = Variable(wte).gradient_target(), dwpe = Variable(wpe).gradient_target();
    context.kernels().embedding_backward(dwte.view, dwpe.view, ids, g[0], B, T, C, V, positions, dwte.accumulate,
                                         dwpe.accumulate);
    return {};
  };
  return record("embedding", {}, std::move(y), std::move(backward), {wte, wpe});
}

}  // namespace trencadis
