// A unit of parameters whose memory goes and comes back, as under ZeRO-3, while two tensors keep pointing at it; and a
// second stream that fills it beside the computation. Build and run: ninja example_storage
#include <cstdio>

#include "runtime/cpu/backend.h"
#include "runtime/tensor.h"

using namespace trencadis;

int main() {
  Context context(make_cpu_backend());  // one rank's allocator, memory tracker, kernels and streams
  const auto report = [&](const char* when) {
    const auto parameter = static_cast<size_t>(MemoryCategory::parameter);
    std::printf("%-16s %2lld bytes of parameters live, %lld at the peak\n", when,
                static_cast<long long>(context.memory().live()[parameter]),
                static_cast<long long>(context.memory().peak()[parameter]));
  };

  // One allocation, two views. Nobody owns a part of it.
  const auto unit = Storage::create(context, 6 * sizeof(float), MemoryCategory::parameter, "unit h.0");
  unit->set_parts({{0, "h.0.weight"}, {16, "h.0.bias"}});
  const Tensor weight(unit, 0, {2, 2}), bias(unit, 4, {2});
  report("created");

  unit->release();
  report("released");
  try {
    context.kernels().fill(bias, 1.0f);
  } catch (const Error& error) {
    std::printf("  error: %s\n", error.what());
  }

  // Taken again, perhaps elsewhere; the views follow. A worker fills it, as a gather does, while this thread is free.
  unit->materialise();
  report("materialised");
  const std::unique_ptr<Stream> comm = context.make_stream("comm");
  const View target(unit->data(), DType::f32, 6);
  comm->enqueue("gather h.0", [target] {
    for (int i = 0; i < 6; ++i) target.as<float>()[i] = static_cast<float>(i + 1);
  });
  const Event gathered = comm->record();
  const Tensor x = Tensor::from(context, std::vector<float>{10, 1}, {1, 2});
  const Tensor y = Tensor::zeros(context, {1, 2});
  context.compute_stream().wait(gathered);  // without this line, y is anybody's guess
  context.kernels().linear(y, x, weight, bias, /*N=*/1, /*C=*/2, /*K=*/2);
  const std::vector<float> values = y.to_vector();
  std::printf("y = x W^T + b = (%g, %g)\n", values[0], values[1]);
}
