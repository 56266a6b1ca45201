// A rank's part of saving and loading: its shard file out, and whatever it holds in, from the shards of any other run.
//
// Loading is an intersection of ranges. A rank of the new run holds [a, b) of a parameter; the index says which files
// have which slices of it; what is common to both is read, and nothing else:
//
//   saved by 3 ranks   |------ rank 0 ------|------ rank 1 ------|------ rank 2 ------|
//   loaded by 2 ranks  |----------- rank 0 -----------|----------- rank 1 -----------|
//                                            ^ two reads of file 1, one by each rank
//
// Nothing here is collective, and no function takes more host memory than kCheckpointBuffer.
#pragma once

#include <memory>

#include "zero/checkpoint/index.h"
#include "zero/checkpoint/safetensors.h"
#include "zero/engine.h"

namespace trencadis {

inline constexpr int64_t kCheckpointBuffer = 4 << 20;  // bytes

// Writes what this rank owns (StateExtent::owned) to a new file, and brings it to the disk. `index` names run and save.
// optimizer_states = false: the parameters' values alone.
CheckpointFile write_shard(ZeroEngine& engine, Context& context, const std::string& folder,
                           const CheckpointIndex& index, int rank, int world);

// The shards of one checkpoint, to be read. Files are opened when first used. Errors: DataError naming the file.
class CheckpointReader {
 public:
  CheckpointReader(std::string folder, const CheckpointIndex& index);
  ~CheckpointReader();

  // Checks file `number` against the index: size, CRC-32C, and that it belongs to this save. Reads all of it once.
  void verify(int number);
  // Fills what this rank holds: values, and with_states the optimizer's state and the counts of steps. The model must
  // match (model_differences). A value that is NaN or infinite is damage, unless its file says that it holds such ones
  // and `as_saved` asks for them.
  void load(ZeroEngine& engine, Context& context, bool with_states, bool as_saved = true);

 private:
  SafetensorsReader& file(int number);
  // Elements [first, first + out.size()) of the tensor `name` in the shard files, whose slices are `tensor`'s.
  void read(const CheckpointTensor& tensor, const std::string& name, int64_t first, std::span<float> out,
            bool as_saved);

  const std::string folder_;
  const CheckpointIndex& index_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
};

// What keeps a checkpoint from being loaded into a model that is laid out like this, one line each: parameters that one
// of them lacks, and other shapes. Empty: they match.
std::vector<std::string> model_differences(const CheckpointIndex& index, const std::vector<FlatUnit>& layouts);

}  // namespace trencadis
