// TokenFiles: the training data as one long row of tokens, read straight from memory-mapped files.
//
// Why mapped: a run looks at a few windows of a step's length; opening a 100 GB set must cost neither time nor memory.
// The kernel loads the pages that are read and shares them between the ranks of a machine.
//
// Formats, told apart by name and content:
//   text            any name but *.bin: every byte is a token, vocabulary 256
//   llm.c, 16 bits  256 int32: 20240520, 1, count, 0...; then count uint16      (GPT-2 tokens, vocabulary 50257)
//   llm.c, 32 bits  256 int32: 20240801, 7, count, 0...; then count uint32      (Llama 3 tokens: give --vocab-size)
//   plain           *.bin without header: uint16 to the end of the file         (nanoGPT)
//                   or uint32, where PlainTokens says so
// All are little-endian, as are the machines this builds for.
//
// Numbers of 32 bits read as 16 are tokens too, every second one 0, and train a model on noise. So a plain file whose
// second halves are all small while the first are not is refused until the width is said (--token-bytes).
//
// Invariants a change must keep:
// - Positions and counts are 64-bit.
// - Every token that leaves read() was checked against the vocabulary: an embedding never sees a wrong index.
// - Resident memory stays small whatever is read: large files give their pages back after each read (promise 2).
// - All errors are DataErrors that name file, value and remedy. A file that is cut short while it is mapped is the one
//   exception: then the operating system ends the process (SIGBUS).
// Threads: const members may be called by several at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace trencadis {

// Owner of one read-only mapping of a whole file.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept
      : bytes_(std::exchange(other.bytes_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&&) = delete;

  const unsigned char* bytes() const { return bytes_; }
  int64_t size() const { return size_; }
  // Gives the pages around [begin, end) back if the file is large. They stay in the kernel's cache and
  // come back when read.
  void release(int64_t begin, int64_t end) const;

 private:
  unsigned char* bytes_ = nullptr;
  int64_t size_ = 0;
};

enum class TokenFormat { text, llmc_u16, llmc_u32, plain_u16, plain_u32 };

// How wide the tokens of files without a header are.
struct PlainTokens {
  int64_t bytes = 0;    // 2 or 4; 0: 2, and what seems to be wider is refused
  std::string because;  // for messages: "--token-bytes 4"
  bool certain = true;  // false: what seems to be wider than `bytes` is refused as well
};

class TokenFiles {
 public:
  // A file, or a glob in quotes ("data/train_*.bin"): its files in the order of their names form one row.
  static std::shared_ptr<const TokenFiles> open(const std::string& pattern, const PlainTokens& plain = {});
  // Text that is held in memory.
  static std::shared_ptr<const TokenFiles> from_text(std::string name, std::string text);

  int64_t size() const { return size_; }  // tokens
  bool is_text() const { return files_.front().format == TokenFormat::text; }
  int64_t default_vocab_size() const { return is_text() ? 256 : 50257; }
  // What messages call it: the file, or "PATTERN (12 files)".
  const std::string& name() const { return name_; }

  // Tokens [begin, begin + count) into `out`; throws DataError at a token that is not below vocab_size.
  void read(int64_t begin, int64_t count, int64_t vocab_size, int32_t* out) const;

  // Looks for tokens that are not below vocab_size in the first 16 MiB, spread evenly over the files: this finds data
  // of another tokenizer at the start, on every rank, for about 20 ms. What lies behind is checked by read(), when it
  // would be used: a scan of all would hold up the start by minutes where the data is large.
  void check_start(int64_t vocab_size) const;

 private:
  struct File {
    std::string path;
    TokenFormat format;
    std::unique_ptr<const MappedFile> map;    // null for text in memory
    std::unique_ptr<const std::string> text;  // null for files
    const unsigned char* tokens;              // behind the header
    int64_t first, count;                     // it holds tokens [first, first + count) of the row
    std::string read_as;                      // for messages: how a file without header was read, and why
  };

  TokenFiles() = default;
  static File open_file(const std::string& path, const PlainTokens& plain);
  void append(File file);
  // Tokens [begin, begin + count) of one file.
  void read_file(const File& file, int64_t begin, int64_t count, int64_t vocab_size, int32_t* out) const;

  std::vector<File> files_;  // never empty
  std::string name_;
  int64_t size_ = 0;
};

// Tokens [begin, end) of files: what a run trains on, or validates on.
struct TokenRange {
  std::shared_ptr<const TokenFiles> files;
  int64_t begin = 0, end = 0;
  std::string what;  // for messages: "training data input.txt"

  int64_t size() const { return end - begin; }
};

// The paths that match, sorted by byte value (not by locale: ranks on several machines must agree).
std::vector<std::string> match_files(const std::string& pattern);

}  // namespace trencadis
