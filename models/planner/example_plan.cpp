// The three parts of a plan, for GPT-2 124M on 8 ranks: what its units hold in each stage, what its activations take, and
// what is sent. Nothing of that size is allocated: a model knows its shapes before it has any memory.
#include "models/families.h"
#include "zero/strategy.h"

using namespace trencadis;

int main() {
  ModelConfig config;
  config.n_layer = 12, config.n_head = 12, config.n_embd = 768, config.block_size = 1024, config.vocab_size = 50257;
  const std::unique_ptr<LanguageModel> model = make_model(config);

  // Who keeps what: the layout of the units, cut for 8 ranks, and the order in which a micro-batch uses them.
  const std::vector<FlatUnit> units = flatten(model->units(), 8);
  PlanConfig plan;
  plan.units = &units;
  plan.uses = model->uses();
  plan.world = 8;

  // What the model needs besides, for one micro-batch and in every stage alike.
  const int64_t activations = model->activation_bytes(/*B=*/4, /*T=*/1024, /*checkpointing=*/false);

  const auto mb = [](int64_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / 1e6); };
  fmt::print("MB of a rank    P      G      O  at rest |  P, G, O at the peak + activations |  sent in a step\n");
  for (int stage = 0; stage < kStages; ++stage) {
    const StagePlan rank = predict_stage(stage, plan);
    const int64_t elements = rank.all_reduce + rank.reduce_scatter + rank.all_gather;  // of which (W-1)/W travel
    fmt::print("stage {}     {:>5}  {:>5}  {:>5}  {:>7} |  {:>6} {:>6} {:>6}        {:>6} |  {:>14}\n", stage,
               mb(rank.at_rest.parameter), mb(rank.at_rest.gradient), mb(rank.at_rest.optimizer),
               mb(rank.at_rest.sum()), mb(rank.peak.parameter), mb(rank.peak.gradient), mb(rank.peak.optimizer),
               mb(activations), mb(elements / 8 * 7 * kF32));
  }
}
