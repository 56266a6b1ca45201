// A GPT learns one sentence by heart, and says it again: model, loss, gradient, optimizer, generation in one loop.
#include <algorithm>
#include <cstdio>
#include <string>

#include "models/gpt/gpt.h"
#include "optim/optimizer.h"
#include "runtime/cpu/backend.h"

using namespace trencadis;

int main() {
  const std::string text = "trencadis: a mosaic of broken tiles";
  const std::vector<int32_t> bytes(text.begin(), text.end());
  const auto T = static_cast<int64_t>(bytes.size()) - 1;

  Context context(make_cpu_backend());
  GPT model({.n_layer = 2, .n_head = 2, .n_embd = 32, .block_size = 64});
  allocate_parameters(model, context, /*seed=*/1);
  const Tensor ids = Tensor::from(context, std::vector<int32_t>(bytes.begin(), bytes.end() - 1), {1, T});
  const Tensor targets = Tensor::from(context, std::vector<int32_t>(bytes.begin() + 1, bytes.end()), {1, T});

  const auto adamw = make_adamw({});
  std::vector<ParamSlice> slices;
  std::vector<Tensor> memory;  // gradients and moments; in training, zero/ owns these
  for (Parameter* p : model.parameters()) {
    for (int i = 0; i < 3; ++i) memory.push_back(Tensor::zeros(context, p->shape));
    ParamSlice slice;
    slice.param = slice.master = p->variable.value();
    slice.gradient = memory[memory.size() - 3];
    slice.states = {memory[memory.size() - 2], memory.back()};
    slice.logical_shape = p->shape;
    slices.push_back(slice);
  }
  for (int64_t step = 1; step <= 100; ++step) {
    for (size_t i = 0; i < slices.size(); ++i) model.parameters()[i]->variable.lend_gradient(memory[3 * i]);
    const Variable loss = model.loss(ids, targets, {.training = true});
    backward(loss, 1.0f / static_cast<float>(T));
    adamw->step(slices, {.lr = 3e-3f, .t = step}, context.kernels());
    if (step == 1 || step % 25 == 0)
      std::printf("step %3ld  loss %.2f\n", static_cast<long>(step), loss.value().item() / static_cast<float>(T));
  }

  std::vector<int32_t> said = {bytes[0]};
  while (said.size() < bytes.size()) {
    const std::vector<float> logits =
        model.next_token_logits(Tensor::from(context, said, {1, static_cast<int64_t>(said.size())})).to_vector();
    said.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  const std::string answer(said.begin(), said.end());
  std::printf("%s\n", answer.c_str());
  return answer == text ? 0 : 1;
}
