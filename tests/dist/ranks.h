// What the tests of communicators share. A test case states what every rank does; the program it is linked into says
// what a rank is: a thread of test_dist (thread_ranks.cpp), or a process of test_dist_mpi (mpi/main.cpp).
#pragma once

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "dist/collective.h"
#include "dist/communicator.h"
#include "runtime/host_streams.h"
#include "runtime/random.h"

#undef CHECK  // check.h's; a test wants doctest's
#include <doctest/doctest.h>

namespace trencadis::test {

// Calls body(communicator) once on every rank, all of them at once, each with a fresh communicator that lives until all
// bodies have returned. Threads: for groups of 1, 2, 3 and 4. Clears the abort flag first.
void on_ranks(const CommOptions& options, const std::function<void(Communicator&)>& body, AbortFlag* abort = nullptr);

// How reduce_scatter accumulates here: acc + (x_0 + x_1 + ...), as GPUs do, or ((acc + x_0) + x_1) + ...
bool accumulates_the_sum();

// Small enough that modest buffers are cut into many chunks and messages; a rank that hangs is found before ctest does.
inline CommOptions cut_small() {
  CommOptions options;
  options.chunk_elements = 50;
  options.message_elements = 300;
  options.timeout_seconds = 30;
  return options;
}

// n elements of one type between two guards, which the destructor checks.
class Array {
 public:
  Array(DType dtype, int64_t n)
      : dtype_(dtype), n_(n), bytes_(static_cast<size_t>(n * size_of(dtype)) + 2 * kGuard, 0x5a) {}
  ~Array() {
    bool intact = true;
    for (size_t i = 0; i < kGuard; ++i) intact = intact && bytes_[i] == 0x5a && bytes_[bytes_.size() - 1 - i] == 0x5a;
    CHECK(intact);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  View view() { return {bytes_.data() + kGuard, dtype_, n_}; }
  template <typename T>
  T* as() {
    return view().as<T>();
  }

 private:
  static constexpr size_t kGuard = 64;
  DType dtype_;
  int64_t n_;
  std::vector<unsigned char> bytes_;
};

// Element i of rank `rank`: signs and magnitudes vary, so that the order of a sum shows in its bits.
template <typename T>
T value(int rank, int64_t i, uint64_t seed = 0) {
  const auto words = philox({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), static_cast<uint32_t>(rank), 7},
                            random_key(seed));
  const double uniform = words[0] / 2147483648.0 - 1;
  if constexpr (std::is_integral_v<T>) return static_cast<T>(uniform * 1e9);
  const double x = uniform * static_cast<double>(int64_t{1} << (words[1] % 24));
  if constexpr (std::is_same_v<T, bf16>)
    return bf16(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

template <typename T>
void fill(View view, int rank, int64_t first = 0, uint64_t seed = 0) {
  for (int64_t i = 0; i < view.size; ++i) view.as<T>()[i] = value<T>(rank, first + i, seed);
}

inline bool same_bits(ConstView a, ConstView b) {
  return a.dtype == b.dtype && a.size == b.size &&
         (a.size == 0 || !std::memcmp(a.data, b.data, static_cast<size_t>(a.bytes())));
}

// The text of the Error that work throws; "" and a failed check if it throws none.
inline std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  FAIL_CHECK("no error was thrown");
  return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace trencadis::test
