// Stage 3: the parameters are sharded too. Memory of one rank, in elements (W ranks, Psi elements of the model):
//
//   parameters       Psi/W   own shard, and full buffers of the unit in use and of those prefetched
//   gradients        Psi/W   own shard, and full buffers lent for a moment, as in stage 2
//   optimizer state  2 Psi/W own shard
//   traffic          3 ga Psi (W-1)/W: gathers for forward and for backward, a reduce-scatter; none after the step
//
// Difference to stage 2: a unit's parameters exist from just before a use to right after it. While a unit computes, the
// next ones in the order of the last pass are gathered (prefetch).
#include "zero/stage3_parameters.h"

namespace trencadis {

void Stage3Parameters::allocate(UnitState& unit) {
  for (SegmentState& segment : unit.segments) {
    const FlatSegment& layout = *segment.layout;
    const FlatRange own = layout.range_of(rt.rank);
    segment.params = piece(unit, "parameters", layout.full(), MemoryCategory::parameter, layout.compute_dtype(),
                           /*released=*/true);
    segment.master = piece(unit, "parameter shard", own, MemoryCategory::parameter, layout.master_dtype());
    bind_parameters(segment);
    if (!layout.trainable()) continue;
    const DType type = layout.reduction_dtype();
    segment.stepped = own;
    segment.gradient = piece(unit, "gradient shard", own, MemoryCategory::gradient, type);
    segment.fresh = piece(unit, "fresh gradients", layout.full(), MemoryCategory::gradient, type, /*released=*/true);
    allocate_states(unit, segment);
  }
}

void Stage3Parameters::gather(UnitState& unit) {
  for (SegmentState& segment : unit.segments) {
    if (segment.params.memory.storage()->materialised()) continue;
    segment.params.materialise();
    rt.gather_stream->wait(rt.compute().record());  // the memory may be in use until here
    rt.gather_comm->all_gather(segment.master.memory, segment.params.memory, *rt.gather_stream,
                               label("parameters", unit));
    unit.gathered = record(*rt.gather_stream);
  }
}

void Stage3Parameters::release(UnitState& unit) {
  unit.held = false;
  rt.compute().wait(unit.gathered);
  for (SegmentState& segment : unit.segments) segment.params.release();
}

// A unit that was gathered ahead and then skipped must not stay: a rank that skips what others use would have it when
// they gather it for backward, and wait in another channel for ranks that wait for it here.
void Stage3Parameters::release_skipped(const std::vector<int>& skipped) {
  for (int index : skipped) {
    UnitState& unit = rt.units[static_cast<size_t>(index)];
    if (!unit.held) release(unit);
  }
}

void Stage3Parameters::use(UnitState& unit) {
  if (!unit.held) release_skipped(rt.order->saw(unit.index));
  gather(unit);
  for (int next : rt.order->next(rt.prefetch)) gather(rt.units[static_cast<size_t>(next)]);
  rt.compute().wait(unit.gathered);
}

void Stage3Parameters::before_forward(UnitState& unit, const RegionUse&) { use(unit); }

void Stage3Parameters::after_forward(UnitState& unit, const RegionUse& use) {
  unit.held = use.recording && (use.backward_follows || !rt.reshard_after_forward);
  if (!unit.held) release(unit);
}

void Stage3Parameters::before_backward(UnitState& unit, const RegionUse& region) {
  lend_transient(unit);
  if (region.backward_needs_parameters) use(unit);
}

void Stage3Parameters::after_backward(UnitState& unit, const RegionUse& region) {
  const bool last = unit.pending_backwards == 0;
  if (!region.backward_needs_parameters && !(unit.held && last)) return;
  unit.held = !rt.reshard_after_forward && !last;
  if (!unit.held) release(unit);
}

void Stage3Parameters::gradients_ready(UnitState& unit) { reduce_scatter_and_free(unit); }
void Stage3Parameters::gradients_ready_early(UnitState&) {}  // every micro-batch has been reduced

// Besides the last reduction: units that were gathered ahead, or held for a backward, and then not used.
void Stage3Parameters::finish_pass() {
  finish_reduction();
  for (UnitState& unit : rt.units) release(unit);
}

// The next use gathers.
void Stage3Parameters::after_step(UnitState&) {}

void Stage3Parameters::gather_for_reading(UnitState& unit) {
  gather(unit);
  rt.compute().wait(unit.gathered);
}
void Stage3Parameters::release_after_reading(UnitState& unit) { release(unit); }

StagePlan Stage3Parameters::predict(const PlanConfig& config) {
  StagePlan plan;
  const int64_t trained = sum_over_units(config, &FlatUnit::trainable_padded);
  const GatherPlan gathers = plan_gathers(config);
  plan.at_rest.parameter = kF32 * sum_over_units(config, &FlatUnit::padded) / config.world;
  plan.peak.parameter = plan.at_rest.parameter + kF32 * gathers.peak_elements;
  plan.at_rest.gradient = kF32 * trained / config.world;
  plan.peak.gradient = plan.at_rest.gradient + kF32 * peak_lent_gradients(config, /*in_flight=*/true);
  plan.at_rest.optimizer = plan.peak.optimizer = kF32 * config.optimizer_states * trained / config.world;
  if (config.world > 1) {
    plan.reduce_scatter = config.grad_accum * trained;
    for (size_t u = 0; u < config.units->size(); ++u)
      plan.all_gather += config.grad_accum * gathers.gathers[u] * (*config.units)[u].padded();
  }
  return plan;
}

}  // namespace trencadis
