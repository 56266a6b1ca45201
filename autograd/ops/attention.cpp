// Causal self-attention on the fused projection qkv (B,T,3C): o = softmax(q k^T / sqrt(D), causal) v per head.
// Saves qkv, o and one log-sum-exp per row and head; backward recomputes the probabilities tile by tile.
#include <cmath>

#include "autograd/ops/ops.h"
#include "runtime/context.h"

namespace trencadis {

Variable causal_self_attention(const Variable& qkv, int64_t heads, const DropoutMask& dropout) {
  const int64_t B = qkv.value().dim(0), T = qkv.value().dim(1), C = qkv.value().dim(2) / 3;
  CHECK(qkv.value().dim(2) == 3 * C && heads > 0 && C % heads == 0,
        "attention: {} channels cannot be cut into q, k, v of {} heads", qkv.value().dim(2), heads);
  AttentionShape shape;
  shape.B = B;
  shape.T = T;
  shape.H = shape.H_kv = heads;
  shape.D = C / heads;
  shape.q_stride = shape.k_stride = shape.v_stride = 3 * C;
  shape.o_stride = C;
  shape.scale = 1.0f / std::sqrt(static_cast<float>(shape.D));
  shape.dropout = dropout;
  Context& context = qkv.value().context();
  // q, k and v lie side by side in each token's row.
  const auto part = [=](const Tensor& t, int64_t i) { return t.view().slice(i * C, t.size() - i * C); };

  Tensor o = Tensor::empty(context, {B, T, C}, DType::f32, MemoryCategory::activation, "attention");
  const Tensor lse = Tensor::empty(context, {B, heads, T}, DType::f32, MemoryCategory::activation, "log-sum-exp");
  const Tensor in = qkv.value();
  context.kernels().attention(o, lse, part(in, 0), part(in, 1), part(in, 2), shape);

  auto backward = [=, &context](Tensors g) -> Tensors {
    Tensor d = Tensor::empty(context, in.shape(), DType::f32, MemoryCategory::activation, "dqkv");
    context.kernels().attention_backward(part(d, 0), part(d, 1), part(d, 2), g[0], o, lse, part(in, 0), part(in, 1),
                                         part(in, 2), shape);
    return {d};
  };
  return record("attention", {qkv}, o, std::move(backward));
}

}  // namespace trencadis
