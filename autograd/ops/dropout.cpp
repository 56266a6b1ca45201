// y = x keep / (1 - p). The mask is a function of counters, so backward draws it again instead of saving it.
#include "autograd/ops/ops.h"
#include "runtime/context.h"

namespace trencadis {

Variable dropout(const Variable& x, const DropoutMask& mask) {
  CHECK(mask.probability >= 0 && mask.probability < 1, "dropout probability {} is not in [0, 1)", mask.probability);
  if (mask.probability == 0) return x;
  const int64_t B = x.value().dim(0), n = x.value().size() / std::max<int64_t>(B, 1);
  Context& context = x.value().context();
  Tensor y = Tensor::empty(context, x.value().shape(), DType::f32, MemoryCategory::activation, "dropout");
  context.kernels().dropout(y, x.value(), B, n, mask);

  auto backward = [=, &context](Tensors g) -> Tensors {
    Tensor dx = g[0].storage().use_count() == 1
                    ? g[0]
                    : Tensor::empty(context, g[0].shape(), DType::f32, MemoryCategory::activation, "dx of dropout");
    context.kernels().dropout(dx, g[0], B, n, mask);
    return {dx};
  };
  return record("dropout", {x}, std::move(y), std::move(backward));
}

}  // namespace trencadis
