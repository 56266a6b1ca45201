// A parameter of 7 x 3 elements, saved by 3 ranks and loaded by 2: which bytes of which file each of them reads.
#include <algorithm>

#include "zero/checkpoint/index.h"
#include "zero/flat_unit.h"

using namespace trencadis;

int main() {
  Parameter matrix, bias;
  matrix.name = "matrix", matrix.shape = {7, 3};
  bias.name = "bias", bias.shape = {5};
  const Unit unit = {"block", {&matrix, &bias}};

  const std::vector<FlatUnit> saved = flatten({unit}, 3), loading = flatten({unit}, 2);
  const std::vector<CheckpointTensor> index = checkpoint_tensors(saved, 3);
  for (const CheckpointTensor& tensor : index)
    for (const CheckpointSlice& slice : tensor.slices)
      fmt::print("{:<7} saved:  file {} has elements [{}, {})\n", tensor.name, slice.file, slice.first,
                 slice.first + slice.count);

  for (int rank = 0; rank < 2; ++rank) {
    const FlatSegment& segment = loading[0].segments[0];
    segment.for_each_slice(segment.range_of(rank), [&](const FlatSlice& wanted) {
      const std::string& name = wanted.entry->parameter->name;
      fmt::print("rank {} wants elements [{}, {}) of {}\n", rank, wanted.first, wanted.first + wanted.count, name);
      for (const CheckpointTensor& tensor : index)
        for (const CheckpointSlice& slice : tensor.slices) {
          // What both have: from the later beginning to the earlier end.
          const int64_t begin = std::max(wanted.first, slice.first);
          const int64_t end = std::min(wanted.first + wanted.count, slice.first + slice.count);
          if (tensor.name == name && begin < end)
            fmt::print("  file {}: {} elements from byte {} of its slice\n", slice.file, end - begin,
                       4 * (begin - slice.first));
        }
    });
  }
  return 0;
}
