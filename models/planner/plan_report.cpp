#include "models/planner/plan_report.h"

#include <algorithm>
#include <array>

#include "models/families.h"
#include "zero/strategy.h"

namespace trencadis {

namespace {

std::string gigabytes(int64_t bytes) {
  const double gb = static_cast<double>(bytes) / 1e9;
  if (gb >= 100) return fmt::format("{:.0f} GB", gb);
  if (gb >= 1) return fmt::format("{:.4g} GB", gb);
  return fmt::format("{:.3g} MB", gb * 1e3);
}

struct Row {
  StagePlan plan;
  int64_t transient = 0, total = 0, traffic = 0;  // bytes; traffic: sent by a rank in a step
  int64_t momentum_state = 0;                     // the state at rest if SGD with momentum trained the model
};

constexpr int kAdamStates = 2, kMomentumStates = 1;  // per element: both moments; the momentum

using Rows = std::array<Row, kStages>;

Rows plan_stages(const PlanRequest& request, const std::vector<FlatUnit>& units, std::vector<RegionUse> uses,
                 int64_t activations, bool bare) {
  PlanConfig config;
  config.units = &units;
  config.uses = std::move(uses);
  config.world = request.world;
  config.grad_accum = request.grad_accum;
  config.prefetch = request.prefetch;
  config.reshard_after_forward = request.reshard_after_forward;
  config.optimizer_states = kAdamStates;
  Rows rows;
  for (int stage = 0; stage < kStages; ++stage) {
    Row& row = rows[static_cast<size_t>(stage)];
    row.plan = predict_stage(stage, config);
    // Categories peak at different moments, so this is a bound.
    row.transient = row.plan.peak.sum() - row.plan.at_rest.sum();
    row.total = bare ? row.plan.at_rest.sum() : row.plan.peak.sum() + activations;
    const int64_t elements = row.plan.all_reduce + row.plan.reduce_scatter + row.plan.all_gather;
    row.traffic = elements / request.world * (request.world - 1) * kF32;
  }
  config.optimizer_states = kMomentumStates;
  for (int stage = 0; stage < kStages; ++stage)
    rows[static_cast<size_t>(stage)].momentum_state = predict_stage(stage, config).at_rest.sum();
  return rows;
}

// What to choose, and why. A bare number of parameters has no buffers and activations: what fits
// then is the state alone.
std::string advice(const PlanRequest& request, const Rows& rows, bool bare) {
  std::string text;
  const auto fits = [&](int stage) { return rows[static_cast<size_t>(stage)].total <= request.device_memory; };
  if (request.device_memory > 0) {
    int smallest = 0;
    while (smallest < kStages && !fits(smallest)) ++smallest;
    if (smallest == kStages)
      text += fmt::format("No stage fits {} on {} ranks: stage 3 needs {}. Add ranks{}.\n",
                          gigabytes(request.device_memory), request.world, gigabytes(rows[3].total),
                          request.model.activation_checkpointing || bare
                              ? ""
                              : ", lower --batch-size, or add --activation-checkpointing");
    else
      text += fmt::format("Smallest stage that fits {}: {} ({}{}).\n", gigabytes(request.device_memory), smallest,
                          gigabytes(rows[static_cast<size_t>(smallest)].total), bare ? ", without activations" : "");
    if (smallest == 0)
      text += "ZeRO is not needed: plain data parallelism (stage 0) fits, and no stage sends less than it does.\n";
  }
  if (request.world == 1) {
    text += "On one rank there is nothing to shard: every stage holds everything. Plan with --world N.\n";
    return text;
  }
  if (request.grad_accum > 1)
    text += fmt::format(
        "With {} micro-batches a step stage 1 sends 2 Psi and stage 2 sends {} Psi, since stage 2 reduces every "
        "micro-batch: prefer stage 1 if its {} of gradients fit.\n",
        request.grad_accum, request.grad_accum + 1, gigabytes(rows[1].plan.peak.gradient));
  if (request.device_memory == 0 && rows[0].total < int64_t{2'000'000'000})
    text += fmt::format(
        "The model is small: stage 0 needs {} a rank. ZeRO is not worth it unless memory is short; stage 3 would send "
        "{} instead of {} a step.\n",
        gigabytes(rows[0].total), gigabytes(rows[3].traffic), gigabytes(rows[0].traffic));
  return text;
}

}  // namespace

std::string plan_report(const PlanRequest& request) {
  CHECK(request.world >= 1, "a plan for {} ranks", request.world);
  const bool bare = request.parameters > 0;
  std::string text;
  Rows rows;
  if (bare) {
    Parameter all;
    all.name = "all";
    all.shape = {request.parameters};
    all.variable = Variable(Tensor(), true);
    rows = plan_stages(request, {FlatUnit({"all", {&all}}, request.world)}, {RegionUse()}, 0, bare);
    text += fmt::format("{:.4g} parameters, fp32, Adam ({} optimizer states an element), {} ranks\n",
                        static_cast<double>(request.parameters), kAdamStates, request.world);
  } else {
    const std::unique_ptr<LanguageModel> model = make_model(request.model);
    const int64_t T = request.model.block_size;
    const bool checkpointing = request.model.activation_checkpointing;
    const auto activations = [&](bool on) { return model->activation_bytes(request.batch_size, T, on); };
    rows =
        plan_stages(request, flatten(model->units(), request.world), model->uses(), activations(checkpointing), bare);
    text += fmt::format(
        "{:.4g} parameters, fp32, Adam ({} optimizer states an element), {} ranks, {} x {} tokens, {} micro-batch{}\n",
        static_cast<double>(model->parameter_count()), kAdamStates, request.world, request.batch_size, T,
        request.grad_accum, request.grad_accum == 1 ? "" : "es");
    text += fmt::format("activations: {} a rank ({} {} --activation-checkpointing)\n",
                        gigabytes(activations(checkpointing)), gigabytes(activations(!checkpointing)),
                        checkpointing ? "without" : "with");
  }
  text += fmt::format("{:<6} {:>10} {:>10} {:>10} {:>10} {:>11} {:>10} {:>12}\n", "stage", "parameters", "gradients",
                      "optimizer", "state", bare ? "" : "transient", bare ? "" : "total", "sent a step");
  for (int stage = 0; stage < kStages; ++stage) {
    const Row& row = rows[static_cast<size_t>(stage)];
    const StateBytes& rest = row.plan.at_rest;
    text += fmt::format("{:<6} {:>10} {:>10} {:>10} {:>10} {:>11} {:>10} {:>12}\n", stage, gigabytes(rest.parameter),
                        gigabytes(rest.gradient), gigabytes(rest.optimizer), gigabytes(rest.sum()),
                        bare ? "" : gigabytes(row.transient), bare ? "" : gigabytes(row.total), gigabytes(row.traffic));
  }
  text += fmt::format("SGD with momentum ({} optimizer state): a state of {}, {}, {}, {} in stages 0 to 3.\n",
                      kMomentumStates, gigabytes(rows[0].momentum_state), gigabytes(rows[1].momentum_state),
                      gigabytes(rows[2].momentum_state), gigabytes(rows[3].momentum_state));
  if (bare)
    text +=
        "State only: activations and the buffers of units in use depend on the model; "
        "leave --params out to plan one.\n";
  return text + advice(request, rows, bare);
}

}  // namespace trencadis
