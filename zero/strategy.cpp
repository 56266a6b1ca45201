// What stages share: taking memory, lending gradients, and the two ways of accumulating them.
#include "zero/strategy.h"

namespace trencadis {

void ShardingStrategy::visit_shards(const std::function<void(const ShardView&)>& visit) const {
  for (const UnitState& unit : rt.units)
    for (const SegmentState& segment : unit.segments) visit({unit, segment, segment.layout->range_of(rt.rank)});
}

Tensor ShardingStrategy::flat(const UnitState& unit, const char* what, int64_t elements, MemoryCategory category,
                              DType dtype, bool released) const {
  const std::string name = fmt::format("{} of {}", what, unit.name());
  const int64_t bytes = elements * size_of(dtype);
  auto storage = released ? Storage::create_released(rt.context, bytes, category, name)
                          : Storage::create(rt.context, bytes, category, name);
  return Tensor(std::move(storage), 0, {elements}, dtype);
}

Piece ShardingStrategy::piece(const UnitState& unit, const char* what, FlatRange range, MemoryCategory category,
                              DType dtype, bool released) const {
  return {range, flat(unit, what, range.size(), category, dtype, released)};
}

void ShardingStrategy::bind_parameters(SegmentState& segment) {
  const Tensor& flat = segment.params.memory;
  std::vector<std::pair<int64_t, std::string>> parts;
  for (const FlatEntry& entry : segment.layout->entries()) {
    entry.parameter->variable.bind(Tensor(flat.storage(), entry.offset, entry.parameter->shape, flat.dtype()));
    parts.emplace_back(entry.offset * size_of(flat.dtype()), entry.parameter->name);
  }
  flat.storage()->set_parts(std::move(parts));
}

void ShardingStrategy::allocate_states(UnitState& unit, SegmentState& segment) const {
  if (!segment.layout->trainable()) return;
  for (int i = 0; i < rt.optimizer_states; ++i) {
    Piece& state = segment.states[static_cast<size_t>(i)];
    state = piece(unit, "optimizer state", segment.stepped, MemoryCategory::optimizer, DType::f32);
    rt.context.kernels().zero(state.memory);
  }
}

void ShardingStrategy::lend(UnitState& unit, const Piece& target) {
  for (const FlatEntry& entry : unit.trained()->layout->entries())
    entry.parameter->variable.lend_gradient(
        Tensor(target.memory.storage(), entry.offset, entry.parameter->shape, target.memory.dtype()));
  unit.lent = true;
}

Event ShardingStrategy::record(Stream& stream) const {
  Event event = stream.record();
  if (rt.prefetch == 0) rt.compute().wait(event);
  return event;
}

CollectiveLabel ShardingStrategy::label(const char* what, const UnitState& unit) const {
  return {fmt::format("{} of {}", what, unit.name()), rt.traffic};
}

// The step's first gradient of a unit is written where the sum will be; only later ones need a buffer of their own.
void ShardingStrategy::lend_accumulated(UnitState& unit) const {
  SegmentState* segment = unit.trained();
  if (!segment || unit.lent) return;
  if (unit.gradient_started) segment->fresh.materialise();
  lend(unit, unit.gradient_started ? segment->fresh : segment->gradient);
}

void ShardingStrategy::add_fresh(UnitState& unit) const {
  SegmentState& segment = *unit.trained();
  if (unit.gradient_started) {
    rt.context.kernels().add(segment.gradient.memory, segment.fresh.memory);
    segment.fresh.release();
  }
  unit.gradient_started = true;
}

void ShardingStrategy::lend_transient(UnitState& unit) const {
  SegmentState* segment = unit.trained();
  if (!segment || unit.lent) return;
  segment->fresh.materialise();
  lend(unit, segment->fresh);
}

void ShardingStrategy::reduce_scatter_and_free(UnitState& unit) {
  finish_reduction();
  SegmentState& segment = *unit.trained();
  rt.reduce_stream->wait(rt.compute().record());
  rt.reduce_comm->reduce_scatter(segment.fresh.memory, segment.gradient.memory, unit.gradient_started,
                                 *rt.reduce_stream, label("gradients", unit));
  unit.gradient_started = true;
  unit.reduced = record(*rt.reduce_stream);
  in_flight_ = &unit;
}

void ShardingStrategy::finish_reduction() {
  UnitState* unit = std::exchange(in_flight_, nullptr);
  if (!unit) return;
  rt.compute().wait(unit->reduced);
  unit->trained()->fresh.release();
}

}  // namespace trencadis
