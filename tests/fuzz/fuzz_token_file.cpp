// Fuzz target: files of tokens. An input is a file, opened once as text (a.txt) and once as tokens (a.bin); what is taken
// must hold the tokens that this target decodes by itself from the formats in models/data/token_files.h, with each width
// of plain tokens.
#include <algorithm>
#include <cstring>
#include <vector>

#include "fuzz.h"
#include "models/data/token_files.h"

using namespace trencadis;
using namespace trencadis::fuzz;

namespace {

constexpr int64_t kVocab = 50257;  // GPT-2's; larger tokens must be refused when they are read

template <typename Number>
std::vector<uint32_t> numbers(const std::string& bytes, size_t from) {
  std::vector<uint32_t> result;
  for (size_t at = from; at + sizeof(Number) <= bytes.size(); at += sizeof(Number)) {
    Number number;
    std::memcpy(&number, bytes.data() + at, sizeof(Number));
    result.push_back(static_cast<uint32_t>(number));
  }
  return result;
}

// Numbers of 32 bits below 2^16, and more of them than zeros in every second place by chance.
bool surely_wide(const std::string& bytes) {
  const std::vector<uint32_t> wide = numbers<uint32_t>(bytes, 0);
  return bytes.size() % 4 == 0 && bytes.size() < (64 << 10) &&
         std::all_of(wide.begin(), wide.end(), [](uint32_t token) { return token <= 0xFFFF; }) &&
         wide.size() - static_cast<size_t>(std::count(wide.begin(), wide.end(), 0u)) >= 24;
}

// The tokens of a file with this content, if it is taken at all; `width` of plain tokens, 0 if it was not said.
std::vector<uint32_t> decoded(const std::string& bytes, bool text, int64_t width) {
  uint32_t head[3] = {};
  std::memcpy(head, bytes.data(), std::min(bytes.size(), sizeof(head)));
  if (head[0] == 20240520 || head[0] == 20240801) {
    const bool wide = head[0] == 20240801;
    expect(head[1] == (wide ? 7u : 1u) && bytes.size() == 1024 + uint64_t{head[2]} * (wide ? 4 : 2),
           "a header of the wrong version or count is taken");
    return wide ? numbers<uint32_t>(bytes, 1024) : numbers<uint16_t>(bytes, 1024);
  }
  if (text) return numbers<uint8_t>(bytes, 0);
  expect(bytes.size() % (width == 4 ? 4 : 2) == 0, "plain tokens of a broken size are taken");
  expect(width != 0 || !surely_wide(bytes), "32 bits are read as pairs of 16");
  return width == 4 ? numbers<uint32_t>(bytes, 0) : numbers<uint16_t>(bytes, 0);
}

void check(const MemoryFile& file, const std::string& bytes, bool text, int64_t width) {
  file.set(bytes);
  const std::string& path = file.path();
  refuses<DataError>(path + ": ", [&] {
    const auto files = TokenFiles::open(path, {width, "the fuzzer"});
    const std::vector<uint32_t> expected = decoded(bytes, text, width);
    expect(!expected.empty() && files->size() == static_cast<int64_t>(expected.size()), "a wrong number of tokens");
    std::vector<int32_t> read(expected.size());
    const bool small = std::all_of(expected.begin(), expected.end(), [](uint32_t token) { return token < kVocab; });
    const bool refused = refuses<DataError>(path + ": ", [&] { files->read(0, files->size(), kVocab, read.data()); });
    expect(refused == !small, "tokens beyond the vocabulary are read, or others refused");
    expect(refused == refuses<DataError>(path + ": ", [&] { files->check_start(kVocab); }),
           "check_start() and read() differ");
    if (refused) return;
    expect(std::equal(read.begin(), read.end(), expected.begin(),
                      [](int32_t a, uint32_t b) { return static_cast<uint32_t>(a) == b; }),
           "other tokens than those of the file");
    const int64_t begin = files->size() / 3, count = files->size() - begin;
    std::vector<int32_t> part(static_cast<size_t>(count));
    files->read(begin, count, kVocab, part.data());
    expect(std::equal(part.begin(), part.end(), read.begin() + begin), "a part differs from the whole");
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const MemoryFile text("a.txt"), tokens("a.bin");
  const std::string bytes = as_text(data, size);
  check(text, bytes, true, 0);
  for (const int64_t width : {0, 2, 4}) check(tokens, bytes, false, width);
  return 0;
}
