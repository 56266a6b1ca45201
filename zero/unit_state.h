// UnitState: what one rank holds of one unit: memory at rest, transient buffers, and how far the step has come.
#pragma once

#include <array>

#include "optim/optimizer.h"
#include "runtime/stream.h"
#include "zero/flat_unit.h"

namespace trencadis {

// Memory for the elements `range` of a segment. An empty piece (undefined memory) holds nothing.
struct Piece {
  FlatRange range;
  Tensor memory;

  // Elements [offset, offset + count) of the segment; they must lie in the range.
  View at(int64_t offset, int64_t count) const { return memory.view().slice(offset - range.begin, count); }
  View at(FlatRange r) const { return at(r.begin, r.size()); }
  void materialise() const { memory.storage()->materialise(); }
  void release() const { memory.storage()->release(); }
};

struct SegmentState {
  const FlatSegment* layout = nullptr;
  Piece params;    // full; what compute reads. Under stage 3 it has bytes only while gathered
  Piece master;    // what the optimizer updates: (part of) params, or under stage 3 the rank's own shard
  Piece gradient;  // the step's accumulated gradient: full or own shard; undefined if frozen
  Piece fresh;     // full; the gradient of the micro-batch under way, has bytes only while needed
  std::array<Piece, kMaxOptimizerStates> states;
  FlatRange stepped;  // what this rank's optimizer updates
};

struct UnitState {
  int index = 0;
  const FlatUnit* layout = nullptr;
  std::vector<SegmentState> segments;

  Event gathered;  // params hold all ranks' values once this has happened
  Event reduced;   // gradient holds the sum over ranks once this has happened

  bool held = false;              // params stay from one use to the next (stage 3)
  int pending_backwards = 0;      // recorded uses whose backward has not run
  bool lent = false;              // ops may write this micro-batch's gradients
  bool ready = false;             // this micro-batch's gradients are complete
  bool gradient_started = false;  // `gradient` holds the contribution of an earlier micro-batch of this step

  const std::string& name() const { return layout->name; }
  // The segment that is trained, or null when all of the unit is frozen.
  SegmentState* trained() { return !segments.empty() && segments[0].layout->trainable() ? segments.data() : nullptr; }
};

}  // namespace trencadis
