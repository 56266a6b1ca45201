// FlatUnit: where each parameter of a unit lies in the unit's flat buffer, and which part of it each rank owns.
//
// One table serves everything that must agree on the layout: memory, slicing for the optimizer, collectives, norm,
// digest and checkpoints. It is arithmetic on shapes: building it allocates nothing, for a model of any size.
//
//   |<- wte.weight ->|pad|<- wpe.weight ->|pad|<- ln_f.weight ->|...|pad to W shards|
//   |<------- shard 0 ------->|<------- shard 1 ------->|<------- shard 2 --------->|
//
// A unit has one segment of what is trained and one of what is frozen (it may lack either). Within a segment, every
// parameter and every shard starts at a multiple of 16 bytes. Invariants: entries ascend and do not overlap; padded =
// size() * shard; nothing outside entries has a meaning, and nothing but zeroing and moving touches it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "layers/module.h"

namespace trencadis {

inline constexpr int64_t kAlignmentBytes = 16;

// Elements [begin, end) of a segment's flat buffer.
struct FlatRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

struct FlatEntry {
  Parameter* parameter = nullptr;
  int64_t offset = 0, count = 0;  // elements of the segment
};

// A piece of one parameter inside a range of a segment.
struct FlatSlice {
  const FlatEntry* entry = nullptr;
  int64_t first = 0;   // element of the parameter
  int64_t offset = 0;  // element of the segment
  int64_t count = 0;
};

class FlatSegment {
 public:
  // dtypes: of the values that compute reads, of the optimizer's masters, of what is reduced.
  FlatSegment(std::vector<Parameter*> parameters, bool trainable, int world, DType compute = DType::f32,
              DType master = DType::f32, DType reduction = DType::f32);

  bool trainable() const { return trainable_; }
  DType compute_dtype() const { return compute_; }
  DType master_dtype() const { return master_; }
  DType reduction_dtype() const { return reduction_; }
  const std::vector<FlatEntry>& entries() const { return entries_; }
  int64_t padded() const { return shard_ * world_; }  // elements of the full buffer
  int64_t shard() const { return shard_; }            // elements per rank
  FlatRange range_of(int rank) const { return {rank * shard_, (rank + 1) * shard_}; }
  FlatRange full() const { return {0, padded()}; }

  // The parameters' pieces inside `range`, ascending; and what is left of it: the pads.
  void for_each_slice(FlatRange range, const std::function<void(const FlatSlice&)>& visit) const;
  void for_each_pad(FlatRange range, const std::function<void(FlatRange)>& visit) const;

 private:
  std::vector<FlatEntry> entries_;
  bool trainable_;
  DType compute_, master_, reduction_;
  int world_;
  int64_t shard_ = 0;
};

struct FlatUnit {
  std::string name;
  std::vector<FlatSegment> segments;

  FlatUnit(const Unit& unit, int world);
  int64_t padded() const;            // elements of all segments
  int64_t trainable_padded() const;  // of those that are trained: what is reduced and stepped
  int64_t shard() const;             // padded() / W
};

// Units of a model, checked: every parameter in exactly one unit.
std::vector<FlatUnit> flatten(const std::vector<Unit>& units, int world);

}  // namespace trencadis
