#include "zero/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "runtime/check.h"
#include "runtime/crc32c.h"

namespace trencadis {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian and are read as they lie");

namespace {

constexpr int64_t kLengthBytes = 8;  // in front of the JSON
constexpr int64_t kBufferBytes =
    1 << 20;  // also the largest single write: its checksum is taken while it is in the cache
constexpr int64_t kWriteBackBytes = 8 << 20;

template <typename... Args>
[[noreturn]] void data_error(fmt::format_string<Args...> text, Args&&... args) {
  throw DataError(fmt::format(text, std::forward<Args>(args)...));
}

// What to do about an error of the operating system.
const char* remedy(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "make room on that disk or choose another folder";
    case EACCES:
    case EPERM:
    case EROFS:
      return "check the permissions or choose another folder";
    case ENOENT:
    case ENOTDIR:
      return "check that the path and its folder are there";
    case EISDIR:
      return "give a file";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    default:
      return "check the disk";
  }
}

// Owner of an open file.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

}  // namespace

// ---- reading ----

struct SafetensorsReader::File {
  explicit File(std::string path_)
      : path(std::move(path_)), descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), open_error(errno) {}

  // Bytes [begin, begin + bytes) of the file.
  void read(int64_t begin, int64_t bytes, void* to) const {
    for (char* out = static_cast<char*>(to); bytes > 0;) {
      const ssize_t got = ::pread(descriptor.get(), out, static_cast<size_t>(bytes), begin);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0)
        data_error("{}: {} bytes at {} cannot be read: {}; {}", path, bytes, begin, std::strerror(errno),
                   remedy(errno));
      if (got == 0)
        data_error("{}: ends at {}, {} bytes early: it was cut short since it was opened; fetch or write it again",
                   path, begin, bytes);
      out += got, begin += got, bytes -= got;
    }
  }

  std::string path;
  Descriptor descriptor;
  int open_error;
  SafetensorsHeader header;
  int64_t data_begin = 0, data_bytes = 0;
  std::unordered_map<std::string_view, size_t> index;  // of entries, by their names
};

SafetensorsReader::SafetensorsReader(std::string path) : file_(std::make_unique<File>(std::move(path))) {
  File& file = *file_;
  if (file.descriptor.get() < 0)
    data_error("{}: cannot be opened: {}; {}", file.path, std::strerror(file.open_error), remedy(file.open_error));
  struct stat status {};
  if (fstat(file.descriptor.get(), &status) != 0)
    data_error("{}: its size is not known: {}; {}", file.path, std::strerror(errno), remedy(errno));
  if (!S_ISREG(status.st_mode)) data_error("{}: is not a regular file; give a safetensors file", file.path);
  const int64_t size = status.st_size;
  if (size < kLengthBytes)
    data_error("{}: has {} bytes, a safetensors file at least {}; fetch or write it again", file.path, size,
               kLengthBytes);
  uint64_t header_bytes = 0;
  file.read(0, kLengthBytes, &header_bytes);
  if (header_bytes > static_cast<uint64_t>(kSafetensorsMaxHeader))
    data_error("{}: begins with {} as the length of its header, more than {}; is it a safetensors file?", file.path,
               header_bytes, kSafetensorsMaxHeader);
  const auto length = static_cast<int64_t>(header_bytes);
  if (length > size - kLengthBytes)
    data_error("{}: should have a header of {} bytes but ends after {}; it was cut short: fetch or write it again",
               file.path, length, size - kLengthBytes);
  std::string json(static_cast<size_t>(length), '\0');
  file.read(kLengthBytes, length, json.data());
  file.data_begin = kLengthBytes + length;
  file.data_bytes = size - file.data_begin;
  file.header = parse_safetensors_header(json, file.data_bytes, file.path);
  for (size_t i = 0; i < file.header.entries.size(); ++i) file.index.emplace(file.header.entries[i].name, i);
}

SafetensorsReader::~SafetensorsReader() = default;
SafetensorsReader::SafetensorsReader(SafetensorsReader&&) noexcept = default;
SafetensorsReader& SafetensorsReader::operator=(SafetensorsReader&&) noexcept = default;

const std::string& SafetensorsReader::path() const { return file_->path; }
const std::vector<SafetensorsEntry>& SafetensorsReader::entries() const { return file_->header.entries; }
const SafetensorsMetadata& SafetensorsReader::metadata() const { return file_->header.metadata; }

const SafetensorsEntry* SafetensorsReader::find(std::string_view name) const {
  const auto found = file_->index.find(name);
  return found == file_->index.end() ? nullptr : &file_->header.entries[found->second];
}

void SafetensorsReader::read(const SafetensorsEntry& entry, int64_t first, int64_t bytes, void* to) const {
  CHECK(entry.begin >= 0 && entry.begin <= entry.end && entry.end <= file_->data_bytes,
        "{}: tensor '{}' at [{},{}) is not of this file, which has {} bytes of tensors", file_->path, entry.name,
        entry.begin, entry.end, file_->data_bytes);
  CHECK(first >= 0 && bytes >= 0 && first <= entry.bytes() - bytes,
        "{}: {} bytes from {} of tensor '{}' were asked for, which has {}", file_->path, bytes, first, entry.name,
        entry.bytes());
  file_->read(file_->data_begin + entry.begin + first, bytes, to);
}

// ---- writing ----

struct SafetensorsWriter::File {
  explicit File(std::string path_)
      : path(std::move(path_)),
        descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)),
        open_error(errno) {}

  // Of at most kBufferBytes.
  void write(const char* from, int64_t bytes) {
    crc.update(from, static_cast<size_t>(bytes));
    while (bytes > 0) {
      const ssize_t done = ::write(descriptor.get(), from, static_cast<size_t>(bytes));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0)
        data_error("{}: cannot be written beyond {} of {} bytes: {}; {}", path, written, total, std::strerror(errno),
                   remedy(errno));
      from += done, written += done, bytes -= done;
    }
    start_write_back();
  }

  // Sends the disk what has been written so far, without waiting: so it works while the next tensors are copied, and
  // fsync at the end finds little left. Only a hint: what goes wrong here goes wrong in fsync again, and is said there.
  void start_write_back() {
    if (written - sent_to_disk < kWriteBackBytes) return;
    ::sync_file_range(descriptor.get(), sent_to_disk, written - sent_to_disk, SYNC_FILE_RANGE_WRITE);
    sent_to_disk = written;
  }

  void flush() {
    write(buffer.data(), static_cast<int64_t>(buffer.size()));
    buffer.clear();
  }

  void append(const char* from, int64_t bytes) {
    while (bytes > 0) {
      if (buffer.empty() && bytes >= kBufferBytes) {
        write(from, kBufferBytes);
        from += kBufferBytes, bytes -= kBufferBytes;
        continue;
      }
      const int64_t here = std::min(bytes, kBufferBytes - static_cast<int64_t>(buffer.size()));
      buffer.insert(buffer.end(), from, from + here);
      from += here, bytes -= here;
      if (static_cast<int64_t>(buffer.size()) == kBufferBytes) flush();
    }
  }

  std::string path;
  Descriptor descriptor;
  int open_error;
  int64_t total = 0;         // bytes that the file is to have
  int64_t appended = 0;      // bytes given so far, header included
  int64_t written = 0;       // bytes that the system has taken
  int64_t sent_to_disk = 0;  // bytes whose way to the disk has begun
  std::vector<char> buffer;
  Crc32c crc;  // of the bytes given to write()
};

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<SafetensorsEntry> entries,
                                     const SafetensorsMetadata& metadata) {
  const std::string header = make_safetensors_header(entries, metadata, path);  // before a file is made or emptied
  file_ = std::make_unique<File>(std::move(path));
  File& file = *file_;
  if (file.descriptor.get() < 0)
    data_error("{}: cannot be written: {}; {}", file.path, std::strerror(file.open_error), remedy(file.open_error));
  file.buffer.reserve(static_cast<size_t>(kBufferBytes));
  file.appended = static_cast<int64_t>(header.size());
  file.total = file.appended + (entries.empty() ? 0 : entries.back().end);
  file.append(header.data(), file.appended);
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::append(const void* data, int64_t bytes) {
  File& file = *file_;
  CHECK(bytes >= 0 && bytes <= file.total - file.appended, "{}: {} bytes are appended, the tensors have {} left",
        file.path, bytes, file.total - file.appended);
  file.append(static_cast<const char*>(data), bytes);
  file.appended += bytes;
}

SafetensorsWriter::Written SafetensorsWriter::finish() {
  File& file = *file_;
  CHECK(file.appended == file.total, "{}: {} bytes of the tensors were never appended", file.path,
        file.total - file.appended);
  CHECK(file.descriptor.get() >= 0, "{}: finish() was called already", file.path);
  file.flush();
  if (::fsync(file.descriptor.get()) != 0)
    data_error("{}: its bytes cannot be brought to the disk: {}; {}", file.path, std::strerror(errno), remedy(errno));
  if (::close(file.descriptor.release()) != 0)
    data_error("{}: cannot be closed: {}; {}", file.path, std::strerror(errno), remedy(errno));
  return {file.written, file.crc.value()};
}

}  // namespace trencadis
