// safetensors: the container of checkpoints and of Hugging Face's weights. 8 bytes (little-endian) that say how long the
// header is, a JSON header, then the tensors' bytes without holes.
//
//   | n: u64 | {"wte.weight":{"dtype":"F32","shape":[65,384],"data_offsets":[0,99840]},...} | bytes of wte.weight | ...
//
// Source: https://github.com/huggingface/safetensors, "Format". The reader believes nothing: a file that it accepts has
// each byte in exactly one tensor, and each tensor as many bytes as type and shape ask for. What the reference reader
// refuses is refused here; so is what only the specification forbids: a key that occurs twice, a header that does not begin
// with '{' or ends with anything but spaces, an entry or metadata that is not an object, a count beyond int64. Fields of an
// entry that the specification does not know are skipped, as the reference does. Types of less than a byte (F4, F6) are
// refused. Errors are DataErrors that name the file, the tensor, what is wrong and the remedy.
// Threads: const members may be called by several at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trencadis {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as the format spells it: F32, BF16, F16, F64, I64, ...
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes, counted from the end of the header

  int64_t bytes() const { return end - begin; }
  int64_t elements() const;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by ascending begin
  SafetensorsMetadata metadata;           // of the key __metadata__
};

constexpr int64_t kSafetensorsMaxHeader = 100'000'000;  // bytes of JSON, as the reference has it

// Bytes of one element, or 0 for a name that is no type of whole bytes of the format.
int64_t safetensors_element_bytes(std::string_view dtype);

// Parses and checks the JSON header of a file with `data_bytes` bytes after it. `name` is the file's, for errors.
SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_bytes, const std::string& name);

// What a file with these entries, in this order, begins with: the length and the JSON, padded with spaces to a multiple of
// 8. Computes the entries' begin and end. Error for entries that no reader would take, DataError if there are too many.
std::string make_safetensors_header(std::vector<SafetensorsEntry>& entries, const SafetensorsMetadata& metadata,
                                    const std::string& name);

class SafetensorsReader {
 public:
  // Opens the file, reads and checks its header; reads no tensor.
  explicit SafetensorsReader(std::string path);
  ~SafetensorsReader();
  SafetensorsReader(SafetensorsReader&&) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&&) noexcept;

  const std::string& path() const;
  const std::vector<SafetensorsEntry>& entries() const;
  const SafetensorsMetadata& metadata() const;
  // Null if there is none of this name.
  const SafetensorsEntry* find(std::string_view name) const;
  // Bytes [first, first + bytes) of a tensor of this file, to host memory.
  void read(const SafetensorsEntry& entry, int64_t first, int64_t bytes, void* to) const;

 private:
  struct File;
  std::unique_ptr<File> file_;
};

// Writes a file front to back with a buffer of fixed size (1 MiB), whatever the size of the tensors. A file that is there
// is overwritten.
class SafetensorsWriter {
 public:
  // Writes the header. `entries` in the order in which they lie in the file; their begin and end are computed here.
  SafetensorsWriter(std::string path, std::vector<SafetensorsEntry> entries, const SafetensorsMetadata& metadata);
  // A file that is not finished stays behind, cut short: no reader accepts it.
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // The next bytes of the tensors, one tensor after another.
  void append(const void* data, int64_t bytes);

  struct Written {
    int64_t bytes = 0;    // of the whole file
    uint32_t crc32c = 0;  // of the whole file
  };
  // Checks that every byte was appended, brings the file to the disk (fsync) and closes it. The name in its folder is
  // safe only after an fsync of the folder, which is the caller's.
  Written finish();

 private:
  struct File;
  std::unique_ptr<File> file_;
};

}  // namespace trencadis
