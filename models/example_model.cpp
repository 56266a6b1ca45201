// A model as trainer, planner, report and folders see it: made by the name of its family, asked for units, uses and
// sizes. No model class is named here. Another family: example_model NAME.
#include "models/families.h"
#include "runtime/cpu/backend.h"

using namespace trencadis;

int main(int argc, char** argv) {
  ModelConfig config;  // as flags, folders and checkpoints hold it
  config.family = argc > 1 ? argv[1] : "gpt2";
  config.n_layer = 2, config.n_head = 2, config.n_embd = 32, config.block_size = 16;

  Context context(make_cpu_backend());
  const std::unique_ptr<LanguageModel> model = make_model(config);
  fmt::print("{} ({} of transformers): {} parameters\n", config.family,
             model_family(config.family).hugging_face.architecture, model->parameter_count());
  for (const Unit& unit : model->units()) {  // what zero/ gathers, reduces and frees together
    int64_t elements = 0;
    for (const Parameter* parameter : unit.parameters) elements += parameter->size();
    fmt::print("  unit {:<5} {:>2} parameters, {:>5} elements\n", unit.name, unit.parameters.size(), elements);
  }
  fmt::print("uses in forward:");
  for (const RegionUse& use : model->uses()) fmt::print(" {}", use.name);
  fmt::print("\nactivations of 4 x 16 tokens: {} bytes, {} with checkpointing\n", model->activation_bytes(4, 16, false),
             model->activation_bytes(4, 16, true));

  allocate_parameters(*model, context, /*seed=*/1);                                          // only now it has memory
  const Tensor ids = Tensor::from(context, std::vector<int32_t>{84, 104, 101, 32}, {1, 4});  // "The "
  fmt::print("logits of what follows: {}\n", model->next_token_logits(ids).to_vector().size());
}
