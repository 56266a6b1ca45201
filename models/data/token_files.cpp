#include "models/data/token_files.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "runtime/check.h"

namespace trencadis {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and are read as they lie");

namespace {

constexpr int64_t kHeaderBytes = 256 * sizeof(int32_t);

template <typename... Args>
[[noreturn]] void data_error(fmt::format_string<Args...> text, Args&&... args) {
  throw DataError(fmt::format(text, std::forward<Args>(args)...));
}

bool ends_with_bin(const std::string& path) { return path.size() > 4 && path.ends_with(".bin"); }

int64_t token_bytes(TokenFormat format) {
  switch (format) {
    case TokenFormat::text:
      return 1;
    case TokenFormat::llmc_u32:
      return 4;
    default:
      return 2;
  }
}

uint32_t word(const unsigned char* bytes, int64_t index) {
  uint32_t value;
  std::memcpy(&value, bytes + index * 4, 4);
  return value;
}

// A printable or white-space byte everywhere: a text, and not tokens.
bool looks_like_text(const unsigned char* bytes, int64_t size) {
  return size >= 16 && std::all_of(bytes, bytes + std::min<int64_t>(size, 4096),
                                   [](unsigned char c) { return (c >= 32 && c < 127) || (c >= 9 && c <= 13); });
}

// Copies tokens to int32; returns the largest.
template <typename Token>
uint32_t widen(const unsigned char* from, int64_t count, int32_t* to) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    Token token;
    std::memcpy(&token, from + i * static_cast<int64_t>(sizeof(Token)), sizeof(Token));
    largest = std::max<uint32_t>(largest, token);
    to[i] = static_cast<int32_t>(token);
  }
  return largest;
}

TokenFormat llmc_format(const std::string& path, const unsigned char* bytes, int64_t size) {
  const bool wide = word(bytes, 0) == 20240801;
  if (size < kHeaderBytes)
    data_error(
        "{}: has the magic number {} of an llm.c token file but ends after {} bytes, inside its header of {}; "
        "fetch or write it again",
        path, word(bytes, 0), size, kHeaderBytes);
  const uint32_t version = word(bytes, 1), expected_version = wide ? 7 : 1;
  if (version != expected_version)
    data_error(
        "{}: llm.c token file with magic number {} has version {}, expected {}; write it again with the present "
        "scripts of llm.c (dev/data)",
        path, word(bytes, 0), version, expected_version);
  const int64_t count = word(bytes, 2), expected_size = kHeaderBytes + count * (wide ? 4 : 2);
  if (size != expected_size)
    data_error(
        "{}: the header counts {} tokens, so the file should have {} bytes, but it has {}; it was cut short or "
        "written wrongly: fetch or write it again",
        path, count, expected_size, size);
  return wide ? TokenFormat::llmc_u32 : TokenFormat::llmc_u16;
}

// Which format a file has, or DataError. `size` > 0.
TokenFormat format_of(const std::string& path, const unsigned char* bytes, int64_t size) {
  const uint32_t magic = size >= 4 ? word(bytes, 0) : 0;
  if (magic == 20240520 || magic == 20240801) return llmc_format(path, bytes, size);
  if (!ends_with_bin(path)) {
    if (std::memchr(bytes, 0, static_cast<size_t>(std::min<int64_t>(size, 4096))))
      data_error("{}: holds a zero byte near its start, so it is not text; files of tokens must be named *.bin", path);
    return TokenFormat::text;
  }
  // llm.c numbers its kinds of file by dates. Read as two uint16, such a number has a low half
  // above GPT-2's vocabulary.
  if (magic >= 20240101 && magic <= 20241231)
    data_error(
        "{}: magic number {} is not that of token files, expected 20240520 (uint16) or 20240801 (uint32); is it a "
        "model or another file of llm.c?",
        path, magic);
  const uint32_t swapped = __builtin_bswap32(magic);
  if (swapped == 20240520 || swapped == 20240801)
    data_error("{}: its magic number {} has its bytes in the wrong order, expected little-endian; write it again", path,
               swapped);
  if (looks_like_text(bytes, size))
    data_error("{}: begins like text, not like tokens; rename it to *.txt to train on its bytes", path);
  if (size % 2)
    data_error(
        "{}: has no llm.c header (first number {}, expected 20240520 or 20240801) and an odd size of {} bytes, so "
        "it cannot be plain uint16 tokens either; fetch or write it again",
        path, magic, size);
  return TokenFormat::plain_u16;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) data_error("{}: cannot be opened: {}; check path and permissions", path, std::strerror(errno));
  struct stat status {};
  const bool known = fstat(file, &status) == 0;
  const bool regular = known && S_ISREG(status.st_mode);
  void* bytes = MAP_FAILED;
  if (regular && status.st_size > 0)
    bytes = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
  const int error = errno;
  ::close(file);
  if (known && S_ISDIR(status.st_mode))
    data_error("{}: is a folder; give a file, or its files as a quoted pattern: '{}/*.bin'", path, path);
  if (!regular) data_error("{}: is not a regular file, so it cannot be memory-mapped; copy it to one", path);
  if (status.st_size == 0) data_error("{}: is empty; give a file with text or tokens", path);
  if (bytes == MAP_FAILED) data_error("{}: cannot be memory-mapped: {}", path, std::strerror(error));
  bytes_ = static_cast<unsigned char*>(bytes);
  size_ = status.st_size;
}

MappedFile::~MappedFile() {
  if (bytes_) munmap(bytes_, static_cast<size_t>(size_));
}

void MappedFile::release(int64_t begin, int64_t end) const {
  // One fault maps up to 64 KiB around itself ("fault-around"), so that much around the range must go. A small file may
  // stay: the calls would cost more than its pages.
  constexpr int64_t around = 64 << 10, small = 8 << 20;
  if (size_ <= small) return;
  begin = begin / around * around;
  end = std::min(size_, (end + around - 1) / around * around);
  madvise(bytes_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
}

std::vector<std::string> match_files(const std::string& pattern) {
  if (struct stat status{}; ::stat(pattern.c_str(), &status) == 0) return {pattern};  // also a name that holds [ or *
  struct Matches {
    glob_t list{};
    ~Matches() { globfree(&list); }
  } matches;
  const int result = ::glob(pattern.c_str(), GLOB_TILDE | GLOB_BRACE, nullptr, &matches.list);
  std::vector<std::string> paths;
  if (result == 0) paths.assign(matches.list.gl_pathv, matches.list.gl_pathv + matches.list.gl_pathc);
  // With braces, glob() returns a pattern that matches nothing as it stands.
  std::erase_if(paths, [](const std::string& path) { return ::access(path.c_str(), F_OK) != 0; });
  std::sort(paths.begin(), paths.end());
  if (paths.empty())
    data_error("{}: no such file{}", pattern,
               pattern.find_first_of("*?[{") == std::string::npos
                   ? "; check the path, relative to where the run started"
                   : ", and as a pattern it matches none");
  return paths;
}

std::shared_ptr<const TokenFiles> TokenFiles::open(const std::string& pattern) {
  const std::vector<std::string> paths = match_files(pattern);
  std::shared_ptr<TokenFiles> files(new TokenFiles);
  files->name_ = paths.size() == 1 ? paths.front() : fmt::format("{} ({} files)", pattern, paths.size());
  for (const std::string& path : paths) files->append(open_file(path));
  return files;
}

std::shared_ptr<const TokenFiles> TokenFiles::from_text(std::string name, std::string text) {
  if (text.empty()) data_error("{}: is empty; give a file with text or tokens", name);
  std::shared_ptr<TokenFiles> files(new TokenFiles);
  files->name_ = name;
  auto held = std::make_unique<const std::string>(std::move(text));
  const auto* tokens = reinterpret_cast<const unsigned char*>(held->data());
  const auto count = static_cast<int64_t>(held->size());
  files->append({std::move(name), TokenFormat::text, nullptr, std::move(held), tokens, 0, count});
  return files;
}

TokenFiles::File TokenFiles::open_file(const std::string& path) {
  auto map = std::make_unique<const MappedFile>(path);
  const TokenFormat format = format_of(path, map->bytes(), map->size());
  const bool header = format == TokenFormat::llmc_u16 || format == TokenFormat::llmc_u32;
  const int64_t skipped = header ? kHeaderBytes : 0;
  const unsigned char* tokens = map->bytes() + skipped;
  const int64_t count = (map->size() - skipped) / token_bytes(format);
  if (count == 0) data_error("{}: is empty: its header counts 0 tokens; give a file with tokens", path);
  return {path, format, std::move(map), nullptr, tokens, 0, count};
}

void TokenFiles::append(File file) {
  if (!files_.empty() && (file.format == TokenFormat::text) != is_text())
    data_error(
        "{} and {}: one is text, the other tokens; they cannot be read as one: give a pattern that matches one kind",
        files_.front().path, file.path);
  file.first = size_;
  size_ += file.count;
  files_.push_back(std::move(file));
}

void TokenFiles::read(int64_t begin, int64_t count, int64_t vocab_size, int32_t* out) const {
  CHECK(begin >= 0 && count >= 0 && begin <= size_ - count, "{}: tokens {} to {} of {} were asked for", name_, begin,
        begin + count, size_);
  auto file = std::upper_bound(files_.begin(), files_.end(), begin,
                               [](int64_t position, const File& f) { return position < f.first; }) -
              1;
  for (; count > 0; ++file) {
    const int64_t start = begin - file->first, here = std::min(count, file->count - start);
    read_file(*file, start, here, vocab_size, out);
    begin += here, count -= here, out += here;
  }
}

void TokenFiles::read_file(const File& file, int64_t begin, int64_t count, int64_t vocab_size, int32_t* out) const {
  const int64_t width = token_bytes(file.format);
  const unsigned char* from = file.tokens + begin * width;
  const uint32_t largest = width == 1   ? widen<uint8_t>(from, count, out)
                           : width == 2 ? widen<uint16_t>(from, count, out)
                                        : widen<uint32_t>(from, count, out);
  if (file.map) {
    const int64_t offset = from - file.map->bytes();
    file.map->release(offset, offset + count * width);
  }
  if (largest < vocab_size) return;
  const auto bad = std::find_if(out, out + count, [vocab_size](int32_t token) {
    return static_cast<uint32_t>(token) >= static_cast<uint64_t>(vocab_size);
  });
  data_error("{}: token {} at position {} is not below the vocabulary of {}; give --vocab-size {} or more{}", file.path,
             static_cast<uint32_t>(*bad), begin + (bad - out), vocab_size, static_cast<int64_t>(largest) + 1,
             file.format == TokenFormat::plain_u16
                 ? " if these are the tokens meant (the file has no llm.c header, so it was read as plain uint16)"
                 : "");
}

void TokenFiles::check_start(int64_t vocab_size) const {
  constexpr int64_t all_bytes = 16 << 20, piece = 1 << 16;
  const int64_t share = all_bytes / static_cast<int64_t>(files_.size());
  std::vector<int32_t> tokens(static_cast<size_t>(piece));
  for (const File& file : files_) {
    const int64_t end = std::min(file.count, std::max<int64_t>(1, share / token_bytes(file.format)));
    for (int64_t begin = 0; begin < end; begin += piece)
      read_file(file, begin, std::min(piece, end - begin), vocab_size, tokens.data());
  }
}

}  // namespace trencadis
