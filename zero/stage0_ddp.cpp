// Stage 0, distributed data parallel. Memory of one rank, in elements (W ranks, Psi elements of the model):
//
//   parameters       Psi     full, always
//   gradients        Psi     full; if ga > 1, also the fresh ones of the unit being filled (and those of the root)
//   optimizer state  2 Psi   full: every rank steps every parameter
//   traffic          2 Psi (W-1)/W: all-reduce, as reduce-scatter and all-gather, of the step's gradients
#include "zero/stage0_ddp.h"

namespace trencadis {

void Stage0DDP::allocate(UnitState& unit) {
  for (SegmentState& segment : unit.segments) {
    const FlatSegment& layout = *segment.layout;
    segment.params = piece(unit, "parameters", layout.full(), MemoryCategory::parameter, layout.compute_dtype());
    segment.master = segment.params;
    bind_parameters(segment);
    if (!layout.trainable()) continue;
    const DType type = layout.reduction_dtype();
    segment.gradient = piece(unit, "gradients", layout.full(), MemoryCategory::gradient, type);
    segment.fresh = piece(unit, "fresh gradients", layout.full(), MemoryCategory::gradient, type, /*released=*/true);
    segment.stepped = layout.full();
    allocate_states(unit, segment);
  }
}

// Parameters are always full and, between steps, always right.
void Stage0DDP::before_forward(UnitState&, const RegionUse&) {}
void Stage0DDP::after_forward(UnitState&, const RegionUse&) {}

void Stage0DDP::before_backward(UnitState& unit, const RegionUse&) { lend_accumulated(unit); }
void Stage0DDP::after_backward(UnitState&, const RegionUse&) {}

void Stage0DDP::gradients_ready(UnitState& unit) {
  add_fresh(unit);
  if (rt.last_micro_batch) reduce(unit);
}
void Stage0DDP::gradients_ready_early(UnitState& unit) { reduce(unit); }

// One all-reduce per unit and step, under the backward of the units before it.
void Stage0DDP::reduce(UnitState& unit) {
  rt.reduce_stream->wait(rt.compute().record());
  rt.reduce_comm->all_reduce(unit.trained()->gradient.memory, ReduceOp::sum, *rt.reduce_stream,
                             label("gradients", unit));
  unit.reduced = record(*rt.reduce_stream);
}

void Stage0DDP::finish_pass() {}

// Every rank has made the same step.
void Stage0DDP::after_step(UnitState&) {}
void Stage0DDP::gather_for_reading(UnitState&) {}
void Stage0DDP::release_after_reading(UnitState&) {}

StagePlan Stage0DDP::predict(const PlanConfig& config) {
  StagePlan plan;
  const int64_t trained = sum_over_units(config, &FlatUnit::trainable_padded);
  plan.at_rest.parameter = plan.peak.parameter = kF32 * sum_over_units(config, &FlatUnit::padded);
  plan.at_rest.gradient = plan.peak.gradient = kF32 * trained;
  if (config.grad_accum > 1) plan.peak.gradient += kF32 * peak_lent_gradients(config, /*in_flight=*/false);
  plan.at_rest.optimizer = plan.peak.optimizer = kF32 * config.optimizer_states * trained;
  if (config.world > 1) plan.all_reduce = 2 * trained;
  return plan;
}

}  // namespace trencadis
