// A transformer block: built without memory, listed, given memory, run; and one slice of a weight drawn on its own.
#include <cstdio>

#include "layers/layers.h"
#include "runtime/cpu/backend.h"

using namespace trencadis;

int main() {
  Context context(make_cpu_backend());  // first, because it must outlive what has memory from it
  BlockConfig config;
  config.channels = 32;
  config.heads = 4;
  config.dropout = 0.1f;
  Block block(config);
  block.assign_names("h.0");

  for (const Parameter* p : block.parameters()) std::printf("%-24s %s\n", p->name.c_str(), to_string(p->shape).c_str());

  const auto live = [&] { return static_cast<long>(context.memory().live_total()); };
  std::printf("bytes before allocation: %ld\n", live());
  allocate_parameters(block, context, /*seed=*/42);
  std::printf("bytes after allocation: %ld\n", live());

  const Variable x(Tensor::zeros(context, {2, 5, 32}));                                     // (B, T, C)
  const ForwardState state = {.training = true, .seed = 42, .step = 0, .first_sample = 0};  // what dropout draws from
  std::printf("output: %s\n", to_string(block.forward(x, state).value().shape()).c_str());

  // What rank 1 of 2 does with its half of a weight: nothing is drawn that is not its own.
  const Parameter& weight = block.mlp.c_fc.weight;
  const int64_t half = weight.size() / 2;
  const Tensor shard = Tensor::empty(context, {half});
  initialise(shard, weight, /*first=*/half, 42, context.kernels());
  const bool same = shard.to_vector() == weight.variable.value().flat_slice(half, half).to_vector();
  std::printf("rank 1's half equals that half of the whole: %s\n", same ? "yes" : "no");
  return same ? 0 : 1;
}
