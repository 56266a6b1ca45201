// The index of a checkpoint: what stands in which file. A checkpoint is a folder:
//
//   step-00000123/
//     index.json                         this: names, shapes, where each slice lies, and where the training stood
//     rank-0000-of-0004.safetensors      what rank 0 answered for: flat slices of parameters and of Adam's moments, f32
//     ...
//
// A slice is elements [first, first + count) of one parameter as it lies in memory, row by row; pads are not saved. So
// whoever loads needs to know nothing of the ranks, stages and pads of the run that saved: it intersects ranges.
// In a shard file the values of parameter p are the tensor "values/p", and the optimizer's state s of it is "s/p".
//
// Invariant: what parse_checkpoint_index() accepts is whole: the slices of each tensor cover its elements exactly once
// and lie in files that the index lists. Version 1; a change that old readers would misread raises the version.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "zero/flat_unit.h"

namespace trencadis {

struct CheckpointSlice {
  int file = 0;  // number in CheckpointIndex::files
  int64_t first = 0, count = 0;
};

struct CheckpointTensor {
  std::string name;  // of the parameter
  std::vector<int64_t> shape;
  bool trainable = true;                // frozen parameters have no optimizer state
  std::vector<CheckpointSlice> slices;  // ascending

  int64_t elements() const;
};

struct CheckpointFile {
  std::string name;
  int64_t bytes = 0;
  uint32_t crc32c = 0;
  int64_t not_finite = 0;  // elements that were NaN or infinite in the run that saved; any other one is damage
};

struct CheckpointIndex {
  static constexpr int kVersion = 1;

  std::string run;       // of the training, from its first step on through all resumptions; 16 hex digits
  std::string save;      // of this save: shards of two saves do not pass for one; 16 hex digits
  int64_t saved_at = 0;  // milliseconds since 1970, UTC
  int64_t step = 0;      // steps done; the learning rate's schedule goes by it
  int64_t optimizer_steps = 0, skipped_steps = 0;  // step = their sum; Adam's t is the first
  int64_t samples = 0;                             // sequences consumed by all ranks: the position in the data
  int world = 1, zero_stage = 0;                   // of the run that saved; nothing depends on them
  std::vector<std::string> states;                 // names of the optimizer's states, by number; none: weights only
  std::vector<std::pair<std::string, std::string>> config;  // the run's flags and their values
  std::vector<CheckpointFile> files;
  std::vector<CheckpointTensor> tensors;

  int64_t not_finite() const;  // of all files
  // The value of a flag of the run that saved; empty where it had none of this name.
  std::string setting(std::string_view key) const;
};

// The text carries its own CRC-32C.
std::string to_json(const CheckpointIndex& index);
// Throws DataError that names the file and what is wrong with it.
CheckpointIndex parse_checkpoint_index(std::string_view json, const std::string& name);

// What a checkpoint of a model that is laid out like this consists of, when rank r writes file r.
std::vector<CheckpointTensor> checkpoint_tensors(const std::vector<FlatUnit>& layouts, int world);

std::string shard_file_name(int rank, int world);

}  // namespace trencadis
