// Fuzz target: the index of a checkpoint. An input is an index.json; its checksum is set right first, or the fuzzer would
// never come behind it.
#include <cctype>
#include <set>

#include "fuzz.h"
#include "runtime/crc32c.h"
#include "zero/checkpoint/index.h"

using namespace trencadis;
using namespace trencadis::fuzz;

namespace {

// With the CRC-32C that the text has when the digits are zeros.
std::string with_checksum(std::string text) {
  static const std::string key = "\"crc32c\": \"";
  const size_t at = text.find(key);
  if (at == std::string::npos || at + key.size() + 8 > text.size()) return text;
  text.replace(at + key.size(), 8, "00000000");
  Crc32c crc;
  crc.update(text.data(), text.size());
  return text.replace(at + key.size(), 8, fmt::format("{:08X}", crc.value()));
}

void check_tensor(const CheckpointTensor& tensor, size_t files) {
  int64_t covered = 0;
  for (const CheckpointSlice& slice : tensor.slices) {
    expect(slice.file >= 0 && static_cast<size_t>(slice.file) < files, "a slice in a file that is not listed");
    expect(slice.first == covered && slice.count > 0, "a hole, an overlap or an empty slice");
    covered += slice.count;
  }
  expect(covered == tensor.elements(), "slices that do not cover their tensor");
}

void check_index(const CheckpointIndex& index) {
  std::set<std::string> names;
  for (const CheckpointFile& file : index.files) {
    expect(names.insert(file.name).second, "two files of one name");
    expect(!file.name.empty() && file.name != ".." && file.name.find('/') == std::string::npos && file.bytes >= 0,
           "a file outside the folder, or of a negative size");
    expect(file.not_finite >= 0 && file.not_finite <= file.bytes / 4,
           "more elements that are not finite than there are");
  }
  names.clear();
  for (const CheckpointTensor& tensor : index.tensors) {
    expect(names.insert(tensor.name).second, "two tensors of one name");
    check_tensor(tensor, index.files.size());
  }
  expect(index.step >= 0 && index.samples >= 0 && index.optimizer_steps >= 0 && index.skipped_steps >= 0 &&
             index.saved_at >= 0 && index.world >= 0 && index.zero_stage >= 0,
         "a negative count");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = with_checksum(as_text(data, size));
  refuses<DataError>("index.json: ", [&] {
    const CheckpointIndex index = parse_checkpoint_index(text, "index.json");
    check_index(index);
    const std::string written = to_json(index);
    const bool refused = refuses<DataError>("again: ", [&] {
      const CheckpointIndex again = parse_checkpoint_index(written, "again");
      expect(to_json(again) == written, "not the same after a round trip");
      expect(again.tensors.size() == index.tensors.size() && again.files.size() == index.files.size() &&
                 again.config == index.config && again.states == index.states && again.run == index.run,
             "a part is lost in a round trip");
    });
    expect(!refused, "what to_json() writes is refused");
  });
  return 0;
}
