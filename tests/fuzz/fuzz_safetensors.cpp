// Fuzz target: safetensors files. An input is a whole file, or, since a fuzzer hardly guesses the length in front of the
// header, "N|JSON": the number of bytes behind the header, and the header.
#include <cstring>
#include <set>

#include "fuzz.h"
#include "zero/checkpoint/safetensors.h"

using namespace trencadis;
using namespace trencadis::fuzz;

namespace {

// The file that an input stands for.
std::string file_of(const std::string& input) {
  const size_t bar = input.find_first_not_of("0123456789");
  if (bar == std::string::npos || bar == 0 || bar > 4 || input[bar] != '|') return input;
  const uint64_t length = input.size() - bar - 1;
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file += input.substr(bar + 1);
  for (int i = 0, size = std::stoi(input); i < size; ++i) file += static_cast<char>(i * 7);
  return file;
}

bool same(const std::vector<SafetensorsEntry>& a, const std::vector<SafetensorsEntry>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape && x.begin == y.begin && x.end == y.end;
         });
}

// Each byte behind the header is in exactly one tensor; each tensor has the bytes of its type and shape, and reads them.
void check_entries(const SafetensorsReader& reader, const std::string& file, uint64_t length) {
  std::set<std::string> names;
  uint64_t at = 8 + length;
  for (const SafetensorsEntry& entry : reader.entries()) {
    expect(names.insert(entry.name).second, "two tensors of one name");
    expect(reader.find(entry.name) == &entry, "a tensor is not found by its name");
    expect(entry.begin >= 0 && static_cast<uint64_t>(entry.begin) + 8 + length == at, "a hole or an overlap");
    unsigned __int128 bytes = static_cast<unsigned __int128>(safetensors_element_bytes(entry.dtype));
    expect(bytes > 0, "an unknown type");
    bool none = false;
    for (const int64_t size : entry.shape) {
      expect(size >= 0, "a negative size");
      none |= size == 0;
      bytes = std::min(bytes * static_cast<unsigned __int128>(size), static_cast<unsigned __int128>(1) << 63);
    }
    expect(static_cast<unsigned __int128>(entry.bytes()) == (none ? 0 : bytes), "a size that is not the shape's");
    expect(at + static_cast<uint64_t>(entry.bytes()) <= file.size(), "a tensor beyond the end");
    std::string read(static_cast<size_t>(entry.bytes()), '\0');
    reader.read(entry, 0, entry.bytes(), read.data());
    expect(read == file.substr(at, read.size()), "other bytes than those of the file");
    at += read.size();
  }
  expect(at == file.size(), "bytes that belong to no tensor");
}

// What was read, written and read again is the same.
void check_round_trip(const SafetensorsReader& reader) {
  std::vector<SafetensorsEntry> entries = reader.entries();
  const std::string header = make_safetensors_header(entries, reader.metadata(), "again");
  expect(same(entries, reader.entries()), "the writer lays the tensors out in another way");
  expect(header.size() % 8 == 0, "a header that is not aligned");
  uint64_t length = 0;
  std::memcpy(&length, header.data(), sizeof(length));
  expect(length == header.size() - 8, "a wrong length in front");
  const SafetensorsHeader again =
      parse_safetensors_header(std::string_view(header).substr(8), entries.empty() ? 0 : entries.back().end, "again");
  expect(same(again.entries, entries) && again.metadata == reader.metadata(), "not the same after a round trip");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const MemoryFile memory("a.safetensors");
  const std::string file = file_of(as_text(data, size));
  memory.set(file);
  refuses<DataError>(memory.path() + ": ", [&] {
    const SafetensorsReader reader(memory.path());
    uint64_t length = 0;
    expect(file.size() >= sizeof(length), "a file without a length");
    std::memcpy(&length, file.data(), sizeof(length));
    expect(length <= file.size() - sizeof(length) && file[8] == '{', "a header that is not there");
    check_entries(reader, file, length);
    check_round_trip(reader);
  });
  return 0;
}
