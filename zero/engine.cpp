#include "zero/engine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "runtime/crc32c.h"
#include "zero/finite.h"

namespace trencadis {

ZeroEngine::ZeroEngine(Context& context, ZeroGroups groups, const std::vector<Unit>& units,
                       std::unique_ptr<Optimizer> optimizer, ZeroOptions options)
    : options_(options),
      optimizer_(std::move(optimizer)),
      layouts_(flatten(units, groups.shard->size())),
      rt_(context) {
  CHECK(!groups.replica || groups.replica->size() == 1, "a replica group of {} ranks is not supported; use size 1",
        groups.replica->size());
  CHECK(options.grad_accum >= 1 && options.prefetch >= 0, "grad_accum {} and prefetch {}", options.grad_accum,
        options.prefetch);
  rt_.rank = groups.shard->rank();
  rt_.world = groups.shard->size();
  rt_.prefetch = options.prefetch;
  rt_.reshard_after_forward = options.reshard_after_forward;
  rt_.optimizer_states = optimizer_->state_count();
  gather_comm_ = groups.shard->duplicate();
  reduce_comm_ = groups.shard->duplicate();
  control_comm_ = groups.shard->duplicate();
  rt_.gather_comm = gather_comm_.get();
  rt_.reduce_comm = reduce_comm_.get();
  if (rt_.world > 1) {
    gather_stream_ = context.make_stream("gather");
    reduce_stream_ = context.make_stream("reduce");
  }
  // Alone there is nothing to overlap.
  rt_.gather_stream = gather_stream_ ? gather_stream_.get() : &context.compute_stream();
  rt_.reduce_stream = reduce_stream_ ? reduce_stream_.get() : &context.compute_stream();

  strategy_ = make_strategy(options.stage, rt_);
  for (const FlatUnit& layout : layouts_) {
    UnitState unit;
    unit.index = static_cast<int>(rt_.units.size());
    unit.layout = &layout;
    for (const FlatSegment& segment : layout.segments) unit.segments.emplace_back().layout = &segment;
    rt_.units.push_back(std::move(unit));
  }
  for (UnitState& unit : rt_.units) strategy_->allocate(unit);
  control_ = Tensor::zeros(context, {kWords}, DType::i64, MemoryCategory::workspace, "control words");
  initialise_parameters();
  check_equal_start();
}

ZeroEngine::ZeroEngine(Context& context, ZeroGroups groups, UnitModule& model, std::unique_ptr<Optimizer> optimizer,
                       ZeroOptions options)
    : ZeroEngine(context, groups, model.units(), std::move(optimizer), options) {
  observed_ = &model;
  model.set_observer(this);
}

ZeroEngine::~ZeroEngine() {
  if (observed_) observed_->set_observer(nullptr);
  // Collectives under way still use memory and communicators.
  gather_stream_.reset();
  reduce_stream_.reset();
  // The model lives on, but its parameters' memory goes with the engine.
  for (const FlatUnit& layout : layouts_)
    for (const FlatSegment& segment : layout.segments)
      for (const FlatEntry& entry : segment.entries()) {
        entry.parameter->variable.bind(Tensor());
        entry.parameter->variable.take_gradient();
      }
}

// Each rank draws what it holds: all of it, or under stage 3 its shard. Nothing is sent, and nothing exists twice.
void ZeroEngine::initialise_parameters() {
  Kernels& kernels = rt_.context.kernels();
  for (const UnitState& unit : rt_.units)
    for (const SegmentState& segment : unit.segments) {
      const FlatRange held = segment.master.range;
      segment.layout->for_each_slice(held, [&](const FlatSlice& slice) {
        initialise(segment.master.at(slice.offset, slice.count), *slice.entry->parameter, slice.first, options_.seed,
                   kernels);
      });
      segment.layout->for_each_pad(held, [&](FlatRange pad) { kernels.zero(segment.master.at(pad)); });
    }
}

// Ranks that hold copies must hold equal ones: another libm on another host would round the initial values differently.
// Shards have no copy to be compared with; that they are cut from one whole is a matter of the seed.
void ZeroEngine::check_equal_start() {
  if (rt_.world == 1) return;
  Crc32c crc;
  crc.update(&options_.seed, sizeof options_.seed);
  for (const UnitState& unit : rt_.units)
    for (const SegmentState& segment : unit.segments) {
      if (segment.master.range.size() != segment.layout->padded()) continue;  // a shard: no other rank has it
      std::vector<char> host(static_cast<size_t>(segment.master.memory.bytes()));
      rt_.context.copy_to_host(host.data(), segment.master.memory);
      crc.update(host.data(), host.size());
    }
  Tensor all = Tensor::zeros(rt_.context, {rt_.world}, DType::i64, MemoryCategory::workspace, "digests");
  std::vector<int64_t> digests(static_cast<size_t>(rt_.world), static_cast<int64_t>(crc.value()));
  rt_.context.copy_from_host(all, digests.data());
  control_comm_->all_gather(all.view().slice(rt_.rank, 1), all, rt_.compute(),
                            {"digest of initial parameters", Traffic::other});
  rt_.context.copy_to_host(digests.data(), all.view());
  for (int r = 1; r < rt_.world; ++r)
    CHECK(digests[static_cast<size_t>(r)] == digests[0],
          "rank {} starts from other parameters ({:08X}) than rank 0 ({:08X}); give all ranks the same seed, and run "
          "the same binary on the same processors",
          r, digests[static_cast<size_t>(r)], digests[0]);
}

void ZeroEngine::begin_span() {
  if (rt_.context.tracer().on()) span_begins_.push_back(Tracer::Clock::now());
}

void ZeroEngine::end_span(const RegionUse& use, const char* what) {
  if (span_begins_.empty()) return;
  rt_.context.tracer().add(rt_.compute().name(), fmt::format("{} {}", use.name, what), span_begins_.back(),
                           Tracer::Clock::now());
  span_begins_.pop_back();
}

void ZeroEngine::before_forward(const RegionUse& use) {
  strategy_->before_forward(unit_of(use), use);
  begin_span();
}

void ZeroEngine::after_forward(const RegionUse& use) {
  end_span(use, "forward");
  UnitState& unit = unit_of(use);
  if (use.recording) {
    ++unit.pending_backwards;
    uses_.push_back(use);
  }
  strategy_->after_forward(unit, use);
}

void ZeroEngine::before_backward(const RegionUse& use) {
  strategy_->before_backward(unit_of(use), use);
  begin_span();
}

void ZeroEngine::after_backward(const RegionUse& use) {
  end_span(use, "backward");
  UnitState& unit = unit_of(use);
  --unit.pending_backwards;
  strategy_->after_backward(unit, use);
  if (unit.pending_backwards == 0) gradients_complete(unit);
}

// Takes the lent memory back from the parameters. What no op has written, and pads, must not hold
// what was there before.
void ZeroEngine::gradients_complete(UnitState& unit) {
  if (!unit.lent) return;
  unit.lent = false;
  unit.ready = true;
  SegmentState& segment = *unit.trained();
  Kernels& kernels = rt_.context.kernels();
  Piece target = {segment.layout->full(), {}};
  for (const FlatEntry& entry : segment.layout->entries()) {
    Variable& variable = entry.parameter->variable;
    const Tensor& lent = variable.gradient();
    if (!variable.gradient_written()) kernels.zero(lent);
    target.memory = Tensor(lent.storage(), 0, {segment.layout->padded()}, lent.dtype());
    variable.take_gradient();
  }
  segment.layout->for_each_pad(target.range, [&](FlatRange pad) { kernels.zero(target.at(pad)); });
  strategy_->gradients_ready(unit);
}

void ZeroEngine::micro_batch(int64_t tokens, const std::function<Variable(const Tensor&)>& forward) {
  CHECK(micro_batches_ < options_.grad_accum, "micro-batch {} of a step of {}; call step() first", micro_batches_ + 1,
        options_.grad_accum);
  if (micro_batches_ == 0) {
    rt_.context.kernels().zero(control_);
    for (UnitState& unit : rt_.units) unit.gradient_started = false;
  }
  tokens_per_micro_batch_ = tokens;
  span_begins_.clear();
  const TraceScope scope(rt_.context.tracer(), rt_.compute().name(),
                         [number = micro_batches_ + 1] { return fmt::format("micro-batch {}", number); });
  rt_.last_micro_batch = ++micro_batches_ == options_.grad_accum;
  rt_.traffic = Traffic::training;
  rt_.order = &training_order_;
  training_order_.begin_pass();
  uses_.clear();

  for (UnitState& unit : rt_.units) unit.ready = false;
  const Tensor totals(control_.storage(), kTotals, {kLossWords}, DType::i64);
  backward(forward(totals), 1.0f / static_cast<float>(tokens));
  // A use whose result did not reach the loss never runs backward.
  for (UnitState& unit : rt_.units) {
    unit.pending_backwards = 0;
    gradients_complete(unit);
    check_seen(unit);
  }
  if (rt_.last_micro_batch) finish_gradients();
  strategy_->finish_pass();
}

// What a parameter is given outside of its unit's regions lies in memory that nobody lent, and would never be stepped.
void ZeroEngine::check_seen(const UnitState& unit) const {
  for (const FlatSegment& segment : unit.layout->segments)
    for (const FlatEntry& entry : segment.entries())
      CHECK(
          !entry.parameter->variable.gradient().defined(),
          "{} was used outside of the regions of its unit '{}', where no stage sees its gradient; use it inside run() "
          "(layers/unit_module.h)",
          entry.parameter->name, unit.name());
}

// A unit that the last micro-batch did not use may still have gradients of earlier ones to reduce, or none at all.
void ZeroEngine::finish_gradients() {
  for (UnitState& unit : rt_.units) {
    SegmentState* segment = unit.trained();
    if (!segment || unit.ready) continue;
    if (unit.gradient_started)
      strategy_->gradients_ready_early(unit);
    else
      rt_.context.kernels().zero(segment->gradient.memory);
  }
}

void ZeroEngine::evaluate(const std::function<void()>& forward) {
  const NoGrad no_grad;
  span_begins_.clear();
  rt_.traffic = Traffic::other;
  rt_.order = &evaluation_order_;
  evaluation_order_.begin_pass();
  forward();
  strategy_->finish_pass();
}

StepResult ZeroEngine::step(float lr, int64_t flag) {
  CHECK(micro_batches_ == options_.grad_accum, "step() after {} of {} micro-batches", micro_batches_,
        options_.grad_accum);
  micro_batches_ = 0;
  rt_.traffic = Traffic::training;  // an evaluation may have come in between
  Kernels& kernels = rt_.context.kernels();
  const View control = control_;
  for (UnitState& unit : rt_.units) rt_.compute().wait(unit.reduced);

  const auto norm_begins = Tracer::Clock::now();
  const auto visit_gradients = [&](const std::function<void(View)>& visit) {
    strategy_->visit_shards([&](const ShardView& shard) {
      if (!shard.segment.layout->trainable()) return;
      shard.segment.layout->for_each_slice(
          shard.range, [&](const FlatSlice& slice) { visit(shard.segment.gradient.at(slice.offset, slice.count)); });
    });
  };
  rt_.context.copy_from_host(control.slice(kFlag, 1), &flag);
  visit_gradients([&](View g) { kernels.max_abs(control.slice(kMaxBits, 1), g); });
  // In the channel of the reductions: where a rank has one more of them than another, the two meet there and say so.
  reduce_comm_->all_reduce(control.slice(kMaxBits, 2), ReduceOp::max, rt_.compute(),
                           {"gradient maximum", Traffic::control});
  visit_gradients([&](View g) { kernels.sum_squares(control.slice(kSquares, 2), g, control.slice(kMaxBits, 1)); });
  control_comm_->all_reduce(control.slice(kTotals, kLossWords + 2), ReduceOp::sum, rt_.compute(),
                            {"tokens, loss and norm", Traffic::control});
  int64_t words[kWords];
  rt_.context.copy_to_host(words, control);  // the step's one host synchronisation
  if (Tracer& tracer = rt_.context.tracer(); tracer.on())
    tracer.add(rt_.compute().name(), "gradient norm", norm_begins, Tracer::Clock::now());

  StepResult result;
  const CommCounters now = counters();
  result.traffic = now - std::exchange(counted_, now);
  result.flag = words[kFlag];
  result.tokens = words[kTotals + kLossTokens];
  const double count = static_cast<double>(std::max<int64_t>(1, result.tokens));
  const bool loss_finite = words[kTotals + kLossNonFinite] == 0;
  result.loss = loss_finite ? static_cast<double>(words[kTotals + kLossFixedPoint]) * kLossUnit / count : std::nan("");
  // Gradients are sums over micro-batches of 1/(B T) of the token sums; the mean over all valid
  // tokens is what is wanted.
  const double to_mean = static_cast<double>(tokens_per_micro_batch_) / count;
  const double maximum = std::bit_cast<float>(static_cast<uint32_t>(words[kMaxBits]));
  const double squares =
      (static_cast<double>(words[kSquares]) + static_cast<double>(words[kSquares + 1]) * kSquareUnit) * kSquareUnit;
  result.grad_max = maximum * to_mean;
  result.grad_norm = result.grad_max * std::sqrt(squares);
  result.skipped = !std::isfinite(maximum) || !loss_finite || result.tokens == 0;
  if (result.skipped) {
    if (!std::isfinite(maximum)) result.grad_norm = maximum;
    ++steps_skipped_;
    return result;
  }
  double clip = 1;
  if (options_.grad_clip > 0) clip = std::min(1.0, options_.grad_clip / (result.grad_norm + 1e-6));
  update(lr, static_cast<float>(to_mean * clip));
  return result;
}

void ZeroEngine::update(float lr, float grad_scale) {
  const StepInfo info = {lr, ++steps_taken_, grad_scale};
  for (UnitState& unit : rt_.units) {
    SegmentState* segment = unit.trained();
    if (!segment) continue;
    const TraceScope scope(rt_.context.tracer(), rt_.compute().name(),
                           [&] { return fmt::format("{} optimizer", unit.name()); });
    rt_.compute().wait(unit.gathered);
    std::vector<ParamSlice> slices;
    segment->layout->for_each_slice(segment->stepped, [&](const FlatSlice& s) {
      ParamSlice slice;
      slice.param = slice.master = segment->master.at(s.offset, s.count);
      slice.gradient = segment->gradient.at(s.offset, s.count);
      for (int i = 0; i < optimizer_->state_count(); ++i)
        slice.states[static_cast<size_t>(i)] = segment->states[static_cast<size_t>(i)].at(s.offset, s.count);
      slice.logical_shape = s.entry->parameter->shape;
      slice.first = s.first;
      slices.push_back(std::move(slice));
    });
    optimizer_->step(slices, info, rt_.context.kernels());
    strategy_->after_step(unit);
  }
}

void ZeroEngine::visit_parameters(const std::function<void(const Parameter&, ConstView)>& visit) {
  struct Place {
    UnitState* unit;
    const SegmentState* segment;
    const FlatEntry* entry;
  };
  std::map<std::string, Place> by_name;
  for (UnitState& unit : rt_.units)
    for (const SegmentState& segment : unit.segments)
      for (const FlatEntry& entry : segment.layout->entries())
        by_name[entry.parameter->name] = {&unit, &segment, &entry};

  rt_.traffic = Traffic::other;
  UnitState* gathered = nullptr;
  for (const auto& [name, place] : by_name) {
    if (gathered != place.unit) {
      if (gathered) strategy_->release_after_reading(*gathered);
      gathered = place.unit;
      strategy_->gather_for_reading(*gathered);
    }
    visit(*place.entry->parameter, place.segment->params.at(place.entry->offset, place.entry->count));
  }
  if (gathered) strategy_->release_after_reading(*gathered);
}

void ZeroEngine::visit_state(StateExtent extent, const std::function<void(const StateSlice&)>& visit) {
  for (UnitState& unit : rt_.units) {
    rt_.compute().wait(unit.gathered);
    for (SegmentState& segment : unit.segments) {
      const FlatRange owned = segment.layout->range_of(rt_.rank);
      const auto visit_piece = [&](const Piece& piece, int state) {
        segment.layout->for_each_slice(extent == StateExtent::owned ? owned : piece.range, [&](const FlatSlice& slice) {
          visit({*slice.entry->parameter, state, slice.first, piece.at(slice.offset, slice.count)});
        });
      };
      visit_piece(segment.master, kParameterValues);
      if (!segment.layout->trainable()) continue;
      for (int i = 0; i < optimizer_->state_count(); ++i) visit_piece(segment.states[static_cast<size_t>(i)], i);
    }
  }
}

void ZeroEngine::set_parameters(
    const std::function<void(const Parameter& parameter, int64_t first, std::span<float> values)>& read,
    const std::function<std::string(const Parameter& parameter, int64_t element, float value)>& place) {
  constexpr int64_t kChunk = 1 << 20;  // elements: the host never holds a whole parameter
  std::vector<float> host;
  visit_state(StateExtent::held, [&](const StateSlice& slice) {
    if (slice.state != kParameterValues) return;
    for (int64_t done = 0; done < slice.memory.size; done += kChunk) {
      const int64_t count = std::min(kChunk, slice.memory.size - done);
      host.resize(static_cast<size_t>(count));
      read(slice.parameter, slice.first + done, host);
      if (const int64_t at = first_not_finite(host); at >= 0) {
        const Parameter& parameter = slice.parameter;
        const int64_t element = slice.first + done + at;
        const float value = host[static_cast<size_t>(at)];
        throw DataError(
            fmt::format("{}: a training cannot start from values that are not finite; see how these weights were made",
                        place ? place(parameter, element, value)
                              : describe_element(parameter.name, parameter.shape, element, value)));
      }
      rt_.context.copy_from_host(slice.memory.slice(done, count), host.data());
    }
  });
}

void ZeroEngine::set_counts(int64_t steps_taken, int64_t steps_skipped) {
  CHECK(steps_taken >= 0 && steps_skipped >= 0 && micro_batches_ == 0, "counts {} and {} after {} micro-batches",
        steps_taken, steps_skipped, micro_batches_);
  steps_taken_ = steps_taken;
  steps_skipped_ = steps_skipped;
}

uint32_t ZeroEngine::digest() {
  Crc32c crc;
  std::vector<char> host;
  visit_parameters([&](const Parameter&, ConstView values) {
    host.resize(static_cast<size_t>(values.bytes()));
    rt_.context.copy_to_host(host.data(), values);
    crc.update(host.data(), host.size());
  });
  return crc.value();
}

StagePlan ZeroEngine::predict(const std::vector<RegionUse>& uses) const {
  PlanConfig config;
  config.units = &layouts_;
  config.uses = uses;
  config.world = rt_.world;
  config.grad_accum = options_.grad_accum;
  config.prefetch = options_.prefetch;
  config.reshard_after_forward = options_.reshard_after_forward;
  config.optimizer_states = optimizer_->state_count();
  return predict_stage(options_.stage, config);
}

StagePlan ZeroEngine::predict() const {
  CHECK(!uses_.empty(), "no micro-batch has shown yet which units it uses; call micro_batch() first");
  return predict(uses_);
}

CommCounters ZeroEngine::drain() {
  for (UnitState& unit : rt_.units) rt_.compute().wait(unit.gathered);
  const CommCounters now = counters();
  return now - std::exchange(counted_, now);
}

int64_t ZeroEngine::staging_bytes() const {
  return gather_comm_->staging_bytes() + reduce_comm_->staging_bytes() + control_comm_->staging_bytes();
}

CommCounters ZeroEngine::counters() const {
  CommCounters sum;
  for (const Communicator* comm : {gather_comm_.get(), reduce_comm_.get(), control_comm_.get()})
    sum += comm->counters();
  return sum;
}

}  // namespace trencadis
