// y = a + b. Backward hands dy to both.
#include "autograd/ops/ops.h"
#include "runtime/context.h"

namespace trencadis {

Variable add(const Variable& a, const Variable& b) {
  CHECK(a.value().shape() == b.value().shape(), "add: shapes {} and {}", to_string(a.value().shape()),
        to_string(b.value().shape()));
  Context& context = a.value().context();
  Tensor y = Tensor::empty(context, a.value().shape(), DType::f32, MemoryCategory::activation, "add");
  context.kernels().add(y, a.value(), b.value());
  return record("add", {a, b}, std::move(y), [](Tensors g) -> Tensors { return {g[0], g[0]}; });
}

}  // namespace trencadis
