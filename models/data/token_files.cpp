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
    case TokenFormat::plain_u32:
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

int halfword(const unsigned char* bytes, int64_t index) { return bytes[2 * index] + 256 * bytes[2 * index + 1]; }

// A printable or white-space byte everywhere: a text, and not tokens.
bool looks_like_text(const unsigned char* bytes, int64_t size) {
  return size >= 16 && std::all_of(bytes, bytes + std::min<int64_t>(size, 4096),
                                   [](unsigned char c) { return (c >= 32 && c < 127) || (c >= 9 && c <= 13); });
}

// Whether the numbers seem to be twice as wide as Half: of every two, the second (the upper half) is below `bound` and
// smaller than many first ones. Tokens of one row know nothing of odd and even: the 24 largest all stand in first places
// once in 2^24 times, and in rows of zeros never. Looks at the start, the middle and the end.
template <typename Half>
bool seems_wider(const unsigned char* bytes, int64_t size, Half bound) {
  constexpr int64_t enough = 24, sample = 64 << 10, pair = 2 * sizeof(Half);
  if (size % pair) return false;
  std::vector<Half> first;
  Half largest_second = 0;
  const int64_t pairs = size / pair, piece = std::min(pairs, sample / pair);
  for (const int64_t begin : {int64_t{0}, (pairs - piece) / 2, pairs - piece})
    for (int64_t i = begin; i < begin + piece; ++i) {
      Half halves[2];
      std::memcpy(halves, bytes + i * pair, pair);
      largest_second = std::max(largest_second, halves[1]);
      if (largest_second >= bound) return false;
      first.push_back(halves[0]);
    }
  if (piece == pairs) first.resize(static_cast<size_t>(pairs));  // the three are the same
  return std::count_if(first.begin(), first.end(), [=](Half half) { return half > largest_second; }) >= enough;
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

// Of tokens without a header.
TokenFormat plain_format(const std::string& path, const unsigned char* bytes, int64_t size, const PlainTokens& plain) {
  const int64_t width = plain.bytes == 0 ? 2 : plain.bytes;
  if (size % width)
    data_error(
        "{}: has no llm.c header (first number {}, expected 20240520 or 20240801), and its {} bytes are not a multiple "
        "of {}, so it cannot be plain uint{} tokens{} either; fetch or write it again",
        path, size >= 4 ? word(bytes, 0) : 0, size, width, 8 * width,
        plain.because.empty() ? "" : " (" + plain.because + ")");
  if (plain.bytes == 0 || !plain.certain) {
    constexpr uint16_t largest_upper = 32;  // tokens below 2^21
    const bool wide = seems_wider<uint16_t>(bytes, size, largest_upper);
    if (wide && seems_wider<uint32_t>(bytes, size, 1))
      data_error(
          "{}: seems to hold plain numbers of 64 bits, of which three quarters are 0; write it as uint16 or uint32 "
          "(numpy: tokens.astype('uint16').tofile(...)), or give --token-bytes 2 or 4 if it is that",
          path);
    if (wide && width == 2)
      data_error(
          "{}: seems to hold plain tokens of 32 bits: as 16 bits, which is how files without an llm.c header are read, "
          "every second token would be 0 or small (from the start: {} {} {} {}); give --token-bytes 4, or --token-bytes 2 if "
          "they are meant so",
          path, halfword(bytes, 0), halfword(bytes, 1), halfword(bytes, 2), halfword(bytes, 3));
  }
  return width == 4 ? TokenFormat::plain_u32 : TokenFormat::plain_u16;
}

// Which format a file has, or DataError. `size` > 0.
TokenFormat format_of(const std::string& path, const unsigned char* bytes, int64_t size, const PlainTokens& plain) {
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
  return plain_format(path, bytes, size, plain);
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

std::shared_ptr<const TokenFiles> TokenFiles::open(const std::string& pattern, const PlainTokens& plain) {
  const std::vector<std::string> paths = match_files(pattern);
  std::shared_ptr<TokenFiles> files(new TokenFiles);
  files->name_ = paths.size() == 1 ? paths.front() : fmt::format("{} ({} files)", pattern, paths.size());
  for (const std::string& path : paths) files->append(open_file(path, plain));
  return files;
}

std::shared_ptr<const TokenFiles> TokenFiles::from_text(std::string name, std::string text) {
  if (text.empty()) data_error("{}: is empty; give a file with text or tokens", name);
  std::shared_ptr<TokenFiles> files(new TokenFiles);
  files->name_ = name;
  auto held = std::make_unique<const std::string>(std::move(text));
  const auto* tokens = reinterpret_cast<const unsigned char*>(held->data());
  const auto count = static_cast<int64_t>(held->size());
  files->append({std::move(name), TokenFormat::text, nullptr, std::move(held), tokens, 0, count, ""});
  return files;
}

TokenFiles::File TokenFiles::open_file(const std::string& path, const PlainTokens& plain) {
  auto map = std::make_unique<const MappedFile>(path);
  const TokenFormat format = format_of(path, map->bytes(), map->size(), plain);
  map->release(0, map->size());
  const bool header = format == TokenFormat::llmc_u16 || format == TokenFormat::llmc_u32;
  const int64_t skipped = header ? kHeaderBytes : 0;
  const unsigned char* tokens = map->bytes() + skipped;
  const int64_t count = (map->size() - skipped) / token_bytes(format);
  if (count == 0) data_error("{}: is empty: its header counts 0 tokens; give a file with tokens", path);
  std::string read_as;
  if (format == TokenFormat::plain_u16 || format == TokenFormat::plain_u32)
    read_as =
        fmt::format(" if these are the tokens meant (the file has no llm.c header, so it was read as plain uint{}{})",
                    8 * token_bytes(format), plain.because.empty() ? "" : ": " + plain.because);
  return {path, format, std::move(map), nullptr, tokens, 0, count, std::move(read_as)};
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
             file.read_as);
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
