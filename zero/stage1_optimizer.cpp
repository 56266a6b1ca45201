// Stage 1: the optimizer state is sharded. Memory of one rank, in elements (W ranks, Psi elements of the model):
//
//   parameters       Psi     full, always
//   gradients        Psi     full; if ga > 1, also the fresh ones of the unit being filled (and those of the root)
//   optimizer state  2 Psi/W own shard: a rank steps only what it owns
//   traffic          2 Psi (W-1)/W: reduce-scatter of the step's gradients, all-gather of the stepped parameters
//
// Difference to stage 0: the all-reduce is cut in two, and the optimizer steps between the halves. Descriptions of
// ZeRO-1 that all-reduce the gradients and gather the parameters send half as much again for the same values.
#include "zero/stage1_optimizer.h"

namespace trencadis {

void Stage1Optimizer::allocate(UnitState& unit) {
  for (SegmentState& segment : unit.segments) {
    const FlatSegment& layout = *segment.layout;
    segment.params = piece(unit, "parameters", layout.full(), MemoryCategory::parameter, layout.compute_dtype());
    segment.master = segment.params;
    bind_parameters(segment);
    if (!layout.trainable()) continue;
    const DType type = layout.reduction_dtype();
    segment.gradient = piece(unit, "gradients", layout.full(), MemoryCategory::gradient, type);
    segment.fresh = piece(unit, "fresh gradients", layout.full(), MemoryCategory::gradient, type, /*released=*/true);
    segment.stepped = layout.range_of(rt.rank);
    allocate_states(unit, segment);
  }
}

// The gather that after_step started must have arrived.
void Stage1Optimizer::before_forward(UnitState& unit, const RegionUse&) { rt.compute().wait(unit.gathered); }
void Stage1Optimizer::after_forward(UnitState&, const RegionUse&) {}

void Stage1Optimizer::before_backward(UnitState& unit, const RegionUse&) { lend_accumulated(unit); }
void Stage1Optimizer::after_backward(UnitState&, const RegionUse&) {}

void Stage1Optimizer::gradients_ready(UnitState& unit) {
  add_fresh(unit);
  if (rt.last_micro_batch) reduce(unit);
}
void Stage1Optimizer::gradients_ready_early(UnitState& unit) { reduce(unit); }

// One reduce-scatter per unit and step, under the backward of the units before it: the sum lands in this rank's part of
// the full gradient.
void Stage1Optimizer::reduce(UnitState& unit) {
  SegmentState& segment = *unit.trained();
  rt.reduce_stream->wait(rt.compute().record());
  rt.reduce_comm->reduce_scatter(segment.gradient.memory, segment.gradient.at(segment.stepped), /*accumulate=*/false,
                                 *rt.reduce_stream, label("gradients", unit));
  unit.reduced = record(*rt.reduce_stream);
}

void Stage1Optimizer::finish_pass() {}

// The other ranks' steps arrive while the optimizer works on the next unit and while forward runs up to this one.
void Stage1Optimizer::after_step(UnitState& unit) {
  SegmentState& segment = *unit.trained();
  rt.gather_stream->wait(rt.compute().record());
  rt.gather_comm->all_gather(segment.params.at(segment.stepped), segment.params.memory, *rt.gather_stream,
                             label("parameters", unit));
  unit.gathered = record(*rt.gather_stream);
}

void Stage1Optimizer::gather_for_reading(UnitState& unit) { rt.compute().wait(unit.gathered); }
void Stage1Optimizer::release_after_reading(UnitState&) {}

StagePlan Stage1Optimizer::predict(const PlanConfig& config) {
  StagePlan plan;
  const int64_t trained = sum_over_units(config, &FlatUnit::trainable_padded);
  plan.at_rest.parameter = plan.peak.parameter = kF32 * sum_over_units(config, &FlatUnit::padded);
  plan.at_rest.gradient = plan.peak.gradient = kF32 * trained;
  if (config.grad_accum > 1) plan.peak.gradient += kF32 * peak_lent_gradients(config, /*in_flight=*/false);
  plan.at_rest.optimizer = plan.peak.optimizer = kF32 * config.optimizer_states * trained / config.world;
  if (config.world > 1) plan.reduce_scatter = plan.all_gather = trained;
  return plan;
}

}  // namespace trencadis
