// ZeroEngine: trains a model whose state is sharded over ranks. Here is what the stages have in common; what differs is
// in the strategies (zero/strategy.h).
//
// The engine is the observer of the model's regions: it finds the unit, counts its uses, tells the strategy, and knows
// when a unit's gradients are complete (after the last recorded use has run backward). A step is ga micro-batches, then
//
//   wait for reductions -> largest |g| over ranks -> (token count, loss, sum of squares) over ranks
//   -> one look by the host -> finite? scale and clip -> optimizer, unit by unit -> strategy.after_step
//
// The norm is taken from integers and each element is counted once, on the rank that owns it, so it has the same bits
// for every stage, W and thread count. A step whose gradient or loss is not finite is skipped on all ranks: every rank
// sees the same maximum.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "layers/unit_module.h"
#include "zero/strategy.h"

namespace trencadis {

struct ZeroOptions {
  int stage = 0;
  int grad_accum = 1;
  float grad_clip = 0;  // largest gradient norm; 0: no clipping
  int prefetch = 1;
  bool reshard_after_forward = true;
  uint64_t seed = 0;  // of the initial parameters
};

// Who shares what: state is sharded over `shard`; `replica` holds the groups that have the same shard
// (size 1 or null: none).
struct ZeroGroups {
  Communicator* shard = nullptr;
  Communicator* replica = nullptr;
};

struct StepResult {
  double loss = 0;       // mean over the step's valid tokens, nats
  int64_t tokens = 0;    // valid tokens of the step, all ranks
  double grad_norm = 0;  // of the mean gradient, before clipping
  double grad_max = 0;   // largest |element| of it: the infinity norm
  bool skipped = false;  // nothing was updated: loss or gradient not finite, or no valid token
  int64_t flag = 0;      // the largest flag that a rank gave
  // What this rank sent since the step before looked: the gathers after that step's update (stages 1 and 2), which run
  // under this step's forward, and this step's gathers and reductions.
  CommCounters traffic;
};

// A piece of a parameter's training state in this rank's memory: elements [first, first + memory.size) of its values
// (state = kParameterValues) or of the optimizer's state of that number. f32.
struct StateSlice {
  const Parameter& parameter;
  int state;
  int64_t first;
  View memory;
};
inline constexpr int kParameterValues = -1;

enum class StateExtent {
  owned,  // what this rank answers for: each element on exactly one rank, the same one in every stage
  held    // all that lies in its memory at rest; copies of it are equal on all ranks that have them
};

class ZeroEngine final : public RegionObserver {
 public:
  // Collective. Takes memory for this rank's share, initialises the parameters and checks that all ranks start alike.
  // context, groups and the units' parameters must outlive the engine.
  ZeroEngine(Context& context, ZeroGroups groups, const std::vector<Unit>& units, std::unique_ptr<Optimizer> optimizer,
             ZeroOptions options);
  // Of a model that knows its units: from now on, for as long as it lives, the engine is the observer of its regions.
  ZeroEngine(Context& context, ZeroGroups groups, UnitModule& model, std::unique_ptr<Optimizer> optimizer,
             ZeroOptions options);
  ~ZeroEngine() override;

  // One micro-batch: `forward` returns the SUM of its tokens' losses and passes `totals` on to softmax_cross_entropy;
  // backward starts from 1/tokens, where `tokens` (B*T) is the same for all micro-batches and ranks of the step.
  void micro_batch(int64_t tokens, const std::function<Variable(const Tensor& totals)>& forward);
  // Ends the step after grad_accum micro-batches. `flag` is whatever ranks want to agree on (a wish to stop).
  StepResult step(float lr, int64_t flag = 0);
  // Runs `forward` without recording; afterwards nothing is gathered. Its traffic is counted apart.
  void evaluate(const std::function<void()>& forward);

  // Optimizer steps taken (skipped ones not counted), and the number of skipped ones.
  int64_t steps_taken() const { return steps_taken_; }
  int64_t steps_skipped() const { return steps_skipped_; }

  // CRC-32C of all parameters in the order of their names, unpadded. Collective under stage 3.
  uint32_t digest();
  // Calls `visit` with every parameter's full values in the order of names, one unit gathered at a time. Collective.
  void visit_parameters(const std::function<void(const Parameter&, ConstView values)>& visit);

  // Shows the state between two steps, unit by unit: what checkpoints write (owned) and fill (held).
  void visit_state(StateExtent extent, const std::function<void(const StateSlice&)>& visit);
  // Gives the parameters their values, as they were drawn at the start: `read` fills `values`, host memory, with the
  // elements [first, first + values.size()) of the parameter, for all that this rank holds. The optimizer's state stays.
  // A value that is not finite is a DataError, whatever the source: it says where `place` has it (by default the
  // parameter's name and index).
  void set_parameters(
      const std::function<void(const Parameter& parameter, int64_t first, std::span<float> values)>& read,
      const std::function<std::string(const Parameter& parameter, int64_t element, float value)>& place = nullptr);
  // Where the training stood whose state has been filled in: see steps_taken() and steps_skipped().
  void set_counts(int64_t steps_taken, int64_t steps_skipped);

  const std::vector<FlatUnit>& layouts() const { return layouts_; }
  const ShardingStrategy& strategy() const { return *strategy_; }
  const ZeroRuntime& runtime() const { return rt_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  const ZeroOptions& options() const { return options_; }
  // The prediction for this engine, given the uses of one forward.
  StagePlan predict(const std::vector<RegionUse>& uses) const;
  // Given the uses of the last micro-batch.
  StagePlan predict() const;

  CommCounters counters() const;  // of all of this rank's channels
  // Waits for what the last update still sends; returns what was sent since the last step() looked.
  CommCounters drain();
  int64_t staging_bytes() const;  // of its communicators' buffers

  void before_forward(const RegionUse& use) override;
  void after_forward(const RegionUse& use) override;
  void before_backward(const RegionUse& use) override;
  void after_backward(const RegionUse& use) override;

 private:
  // The words of the control message, i64.
  static constexpr int kMaxBits = 0, kFlag = 1, kTotals = 2, kSquares = kTotals + int{kLossWords},
                       kWords = kSquares + 2;

  void initialise_parameters();
  void check_equal_start();
  void gradients_complete(UnitState& unit);
  void check_seen(const UnitState& unit) const;
  void finish_gradients();
  // The compute of a region, as a span of the trace.
  void begin_span();
  void end_span(const RegionUse& use, const char* what);
  UnitState& unit_of(const RegionUse& use) { return rt_.units[static_cast<size_t>(use.unit)]; }
  void update(float lr, float grad_scale);

  ZeroOptions options_;
  UnitModule* observed_ = nullptr;  // whose observer this is
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<FlatUnit> layouts_;
  ZeroRuntime rt_;
  std::unique_ptr<Communicator> gather_comm_, reduce_comm_, control_comm_;
  std::unique_ptr<Stream> gather_stream_, reduce_stream_;
  std::unique_ptr<ShardingStrategy> strategy_;
  UseOrder training_order_, evaluation_order_;
  std::vector<RegionUse> uses_;  // of the last micro-batch
  Tensor control_;
  std::vector<Tracer::Clock::time_point> span_begins_;  // of regions that run now
  CommCounters counted_;                                // what earlier steps have reported
  int micro_batches_ = 0;                               // of the step under way
  int64_t tokens_per_micro_batch_ = 0;
  int64_t steps_taken_ = 0, steps_skipped_ = 0;
};

}  // namespace trencadis
