// What the fuzz targets share. A target gets bytes from libFuzzer and may end in two ways only: the parser refuses them
// with its own kind of error, or it takes them and all properties hold that the target checks. Anything else - a crash, a
// sanitizer's report, another exception, a property that fails - stops the fuzzer, which then keeps the input.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "runtime/check.h"

namespace trencadis::fuzz {

inline void expect(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "PROPERTY FAILED: %s\n", what.c_str());
  std::abort();
}

// Whether call() throws a Refusal; its text has to begin with `place`. Other exceptions pass, and stop the fuzzer.
template <typename Refusal, typename Call>
bool refuses(const std::string& place, Call call) {
  try {
    call();
    return false;
  } catch (const Refusal& error) {
    const std::string text = error.what();
    expect(text.starts_with(place), "an error does not begin with '" + place + "': " + text);
    return true;
  }
}

inline std::string as_text(const uint8_t* data, size_t size) {
  return std::string(reinterpret_cast<const char*>(data), size);
}

// A file in memory that has a path ending in `name`: a link in a temporary folder. Thousands of writes to a disk would be
// most of the time of a run.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name) : number_(memfd_create("fuzz", 0)) {
    std::string pattern = (std::filesystem::temp_directory_path() / "trencadis-fuzz-XXXXXX").string();
    expect(number_ >= 0 && mkdtemp(pattern.data()) != nullptr, "no temporary folder or file in memory can be made");
    folder_ = pattern;
    path_ = folder_ + "/" + name;
    std::filesystem::create_symlink(fmt::format("/proc/self/fd/{}", number_), path_);
  }
  ~MemoryFile() {
    ::close(number_);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  const std::string& path() const { return path_; }
  void set(const std::string& bytes) const {
    const bool written = ftruncate(number_, 0) == 0 &&
                         pwrite(number_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
    expect(written, "the file in memory cannot be written");
  }

 private:
  int number_;
  std::string folder_, path_;
};

}  // namespace trencadis::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
