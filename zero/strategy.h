// ShardingStrategy: what differs between the ZeRO stages, and nothing else.
//
// The engine (zero/engine.h) turns regions into units and calls a strategy at fixed moments of the program, always on
// the compute thread. A strategy decides what is in memory, and which collective runs when. Each stage is one file that
// opens with its memory table: lay two beside each other to see the stage as a difference.
//
// Rules that every strategy keeps:
//  - memory is taken and given back only here, by the compute thread, so peaks do not depend on timing;
//  - a collective starts after what compute has done so far (stream.wait(compute.record())), and whoever reads its
//    result waits for its event;
//  - gradients of one micro-batch are computed fresh and then added, in an order that depends on the program alone.
#pragma once

#include <memory>

#include "autograd/region.h"
#include "dist/communicator.h"
#include "zero/plan.h"
#include "zero/unit_state.h"
#include "zero/use_order.h"

namespace trencadis {

// What strategies work with; owned by the engine.
struct ZeroRuntime {
  explicit ZeroRuntime(Context& c) : context(c) {}

  Context& context;
  int rank = 0, world = 1;
  // Gathers have a channel of their own: a gather that is needed soon never queues behind a reduction.
  Communicator* gather_comm = nullptr;
  Communicator* reduce_comm = nullptr;
  Stream* gather_stream = nullptr;
  Stream* reduce_stream = nullptr;
  int prefetch = 1;  // units gathered ahead; 0: compute waits for every collective at once
  bool reshard_after_forward = true;
  int optimizer_states = 2;

  std::vector<UnitState> units;
  UseOrder* order = nullptr;            // of the pass under way
  bool last_micro_batch = true;         // of the step
  Traffic traffic = Traffic::training;  // of the pass under way

  Stream& compute() { return context.compute_stream(); }
};

// What visit_shards shows: the elements `range` of a segment that this rank answers for, each exactly
// once over all ranks.
struct ShardView {
  const UnitState& unit;
  const SegmentState& segment;
  FlatRange range;
};

class ShardingStrategy {
 public:
  explicit ShardingStrategy(ZeroRuntime& runtime) : rt(runtime) {}
  virtual ~ShardingStrategy() = default;
  ShardingStrategy(const ShardingStrategy&) = delete;
  ShardingStrategy& operator=(const ShardingStrategy&) = delete;

  // Takes the memory that the unit holds at rest. Optimizer states start at zero; parameters are not yet initialised.
  virtual void allocate(UnitState& unit) = 0;

  virtual void before_forward(UnitState& unit, const RegionUse& use) = 0;
  virtual void after_forward(UnitState& unit, const RegionUse& use) = 0;
  // Lends gradient memory at the unit's first use in a micro-batch's backward.
  virtual void before_backward(UnitState& unit, const RegionUse& use) = 0;
  virtual void after_backward(UnitState& unit, const RegionUse& use) = 0;
  // The micro-batch's gradients of the unit are complete: pads are zero, unused parameters have gradient zero.
  virtual void gradients_ready(UnitState& unit) = 0;
  // Called for a unit that the step's last micro-batch did not use, but an earlier one did.
  virtual void gradients_ready_early(UnitState& unit) = 0;
  // End of a micro-batch or an evaluation: nothing transient stays.
  virtual void finish_pass() = 0;
  // The optimizer has updated `stepped` of the unit: make params right on every rank before they are read again.
  virtual void after_step(UnitState& unit) = 0;
  // Makes params complete and readable on this rank, and undoes that. For digests, saving and tests.
  virtual void gather_for_reading(UnitState& unit) = 0;
  virtual void release_after_reading(UnitState& unit) = 0;

  // The rank's own shard of every segment: norm, checkpoint and digest go by it. The same in every stage, although
  // stages 0 to 2 hold more: so nothing is counted twice.
  void visit_shards(const std::function<void(const ShardView&)>& visit) const;

 protected:
  Tensor flat(const UnitState& unit, const char* what, int64_t elements, MemoryCategory category, DType dtype,
              bool released = false) const;
  Piece piece(const UnitState& unit, const char* what, FlatRange range, MemoryCategory category, DType dtype,
              bool released = false) const;
  // Gives the parameters of `segment` their memory: views of segment.params.
  static void bind_parameters(SegmentState& segment);
  // Optimizer states for segment.stepped, zeroed.
  void allocate_states(UnitState& unit, SegmentState& segment) const;
  // Ops may write the unit's gradients into `target` (full) from now on.
  static void lend(UnitState& unit, const Piece& target);
  // An event after everything that has been put on `stream`; with prefetch 0, compute waits for it at once.
  Event record(Stream& stream) const;
  CollectiveLabel label(const char* what, const UnitState& unit) const;

  // Stages 0 and 1: the full gradient stays, and later micro-batches are added to it.
  void lend_accumulated(UnitState& unit) const;
  void add_fresh(UnitState& unit) const;
  // Stages 2 and 3: the full gradient is lent for one micro-batch, reduce-scattered into the shard and freed; at most
  // one reduction is in flight.
  void lend_transient(UnitState& unit) const;
  void reduce_scatter_and_free(UnitState& unit);
  void finish_reduction();

  ZeroRuntime& rt;

 private:
  UnitState* in_flight_ = nullptr;  // whose fresh gradient is being reduced
};

// The only places where a stage is named by its number.
std::unique_ptr<ShardingStrategy> make_strategy(int stage, ZeroRuntime& runtime);
// Memory and traffic of a stage from the configuration alone: its `predict`, the arithmetic behind its memory table.
// config.units are laid out for config.world ranks.
StagePlan predict_stage(int stage, const PlanConfig& config);
inline constexpr int kStages = 4;

}  // namespace trencadis
