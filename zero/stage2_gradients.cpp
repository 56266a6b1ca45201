// Stage 2: the gradients are sharded too. Memory of one rank, in elements (W ranks, Psi elements of the model):
//
//   parameters       Psi     full, always
//   gradients        Psi/W   own shard; lent for a moment, full: the root's, the unit's being filled, one being reduced
//   optimizer state  2 Psi/W own shard
//   traffic          (ga+1) Psi (W-1)/W: reduce-scatter in every micro-batch, all-gather of the stepped parameters
//
// Difference to stage 1: a unit's full gradient lives from its first backward to its reduction. Since it is gone then,
// every micro-batch must be reduced: with many micro-batches a step, stage 1 sends less.
#include "zero/stage2_gradients.h"

namespace trencadis {

void Stage2Gradients::allocate(UnitState& unit) {
  for (SegmentState& segment : unit.segments) {
    const FlatSegment& layout = *segment.layout;
    segment.params = piece(unit, "parameters", layout.full(), MemoryCategory::parameter, layout.compute_dtype());
    segment.master = segment.params;
    bind_parameters(segment);
    if (!layout.trainable()) continue;
    const DType type = layout.reduction_dtype();
    segment.stepped = layout.range_of(rt.rank);
    segment.gradient = piece(unit, "gradient shard", segment.stepped, MemoryCategory::gradient, type);
    segment.fresh = piece(unit, "fresh gradients", layout.full(), MemoryCategory::gradient, type, /*released=*/true);
    allocate_states(unit, segment);
  }
}

// The gather that after_step started must have arrived.
void Stage2Gradients::before_forward(UnitState& unit, const RegionUse&) { rt.compute().wait(unit.gathered); }
void Stage2Gradients::after_forward(UnitState&, const RegionUse&) {}

void Stage2Gradients::before_backward(UnitState& unit, const RegionUse&) { lend_transient(unit); }
void Stage2Gradients::after_backward(UnitState&, const RegionUse&) {}

// ((shard + x_0) + x_1) + ... over the ranks: micro-batch after micro-batch in the order a W + r, as one process would.
void Stage2Gradients::gradients_ready(UnitState& unit) { reduce_scatter_and_free(unit); }
void Stage2Gradients::gradients_ready_early(UnitState&) {}  // every micro-batch has been reduced

void Stage2Gradients::finish_pass() { finish_reduction(); }

void Stage2Gradients::after_step(UnitState& unit) {
  SegmentState& segment = *unit.trained();
  rt.gather_stream->wait(rt.compute().record());
  rt.gather_comm->all_gather(segment.params.at(segment.stepped), segment.params.memory, *rt.gather_stream,
                             label("parameters", unit));
  unit.gathered = record(*rt.gather_stream);
}

void Stage2Gradients::gather_for_reading(UnitState& unit) { rt.compute().wait(unit.gathered); }
void Stage2Gradients::release_after_reading(UnitState&) {}

StagePlan Stage2Gradients::predict(const PlanConfig& config) {
  StagePlan plan;
  const int64_t trained = sum_over_units(config, &FlatUnit::trainable_padded);
  plan.at_rest.parameter = plan.peak.parameter = kF32 * sum_over_units(config, &FlatUnit::padded);
  plan.at_rest.gradient = kF32 * trained / config.world;
  plan.peak.gradient = plan.at_rest.gradient + kF32 * peak_lent_gradients(config, /*in_flight=*/true);
  plan.at_rest.optimizer = plan.peak.optimizer = kF32 * config.optimizer_states * trained / config.world;
  if (config.world > 1) {
    plan.reduce_scatter = config.grad_accum * trained;
    plan.all_gather = trained;
  }
  return plan;
}

}  // namespace trencadis
