// Errors and the one CHECK macro.
//
// Why exceptions: a wrong shape or a missing file is found deep inside a library, but only `main` knows what
// to do about it. Each class below stands for one exit code of the trainer; the text names the thing, its
// value and the remedy.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace trencadis {

// Exit code 1: anything that is not one of the more exact classes below.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Exit code 2: a flag, a key or a value that cannot be used.
struct UsageError : Error {
  using Error::Error;
};

// Exit code 3: a data file or a checkpoint that cannot be read or written.
struct DataError : Error {
  using Error::Error;
};

// Exit code 4: loss or gradient norm not finite for several steps.
struct DivergedError : Error {
  using Error::Error;
};

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);
}

}  // namespace trencadis

// CHECK(n > 0, "tensor {} has {} elements; give at least one", name, n): throws Error when the condition is false.
#define CHECK(condition, ...)                                                                        \
  do {                                                                                               \
    if (!(condition)) [[unlikely]]                                                                   \
      ::trencadis::detail::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)
