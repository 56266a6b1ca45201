// What the kernel tests share: one kernel call, run under every number of threads and alignment, and
// compared to the bit.
//
// Why: promise 1 says that threads and alignment change no bit, so each test states its kernel once, as a function of
// `Buffers`, and same_bits() runs it in twelve contexts. Arrays lie between guard zones; the contexts poison memory, so
// an element that a kernel forgets to write, or reads past its end, is a NaN in the result.
//
// Include project headers before this one: check.h and doctest both have a macro CHECK, and a test wants doctest's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "runtime/cpu/backend.h"
#include "runtime/random.h"
#include "runtime/tensor.h"

#undef CHECK
#include <doctest/doctest.h>

namespace trencadis::test {

// -- values -----------------------------------------------------------------------------------------------------------

// Uniform in [-scale, scale).
inline std::vector<float> random_floats(int64_t n, uint64_t seed, float scale = 1) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t word = philox({static_cast<uint32_t>(i), 0, 0, 0}, random_key(seed))[0];
    values[i] = scale * (static_cast<float>(word >> 8) * (2.0f / (1 << 24)) - 1.0f);
  }
  return values;
}

// Uniform in [0, below).
inline std::vector<int32_t> random_ints(int64_t n, uint64_t seed, int32_t below) {
  std::vector<int32_t> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<int32_t>(philox({static_cast<uint32_t>(i), 1, 0, 0}, random_key(seed))[0] %
                                     static_cast<uint32_t>(below));
  return values;
}

// The largest |got_i - want_i|; infinite when a value that should be finite is not, or when the sizes differ.
template <typename T>
double max_error(std::span<const float> got, std::span<const T> want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    if (!std::isfinite(error)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, error);
  }
  return worst;
}
template <typename T>
double max_error(const std::vector<float>& got, const std::vector<T>& want) {
  return max_error(std::span<const float>(got), std::span<const T>(want));
}

// max_error in units of the largest |want_i|.
template <typename T>
double relative_error(const std::vector<float>& got, const std::vector<T>& want) {
  double largest = std::numeric_limits<double>::min();
  for (T value : want) largest = std::max(largest, std::abs(static_cast<double>(value)));
  return max_error(got, want) / largest;
}

// -- one kernel call --------------------------------------------------------------------------------------------------

// The arrays of one kernel call in one context. Each lies between 64 guard bytes on either side; they must come back
// unchanged, and so must the inputs.
class Buffers {
 public:
  explicit Buffers(Context& context) : context_(context) {}

  Context& context() { return context_; }
  Kernels& kernels() { return context_.kernels(); }

  // A copy of `values`; the kernel must not change it.
  template <typename T>
  View in(const std::vector<T>& values) {
    return add(values.data(), values.size(), false);
  }
  // n elements of NaN bytes; compared.
  template <typename T = float>
  View out(int64_t n) {
    return add(static_cast<const T*>(nullptr), static_cast<size_t>(n), true);
  }
  // Starts as `values`; compared.
  template <typename T>
  View inout(const std::vector<T>& values) {
    return add(values.data(), values.size(), true);
  }

  // The bytes of every out() and inout(), in the order they were made. Checks guards and inputs.
  std::vector<std::vector<char>> finish() {
    context_.compute_stream().synchronize();
    std::vector<std::vector<char>> outputs;
    for (const Array& array : arrays_) {
      const char* block = static_cast<const char*>(array.storage->data());
      const size_t bytes = array.start.size();
      const auto is_guard = [](char c) { return c == kGuard; };
      REQUIRE_MESSAGE(std::all_of(block, block + kGuardBytes, is_guard), "a kernel wrote before array ",
                      &array - arrays_.data());
      REQUIRE_MESSAGE(std::all_of(block + kGuardBytes + bytes, block + 2 * kGuardBytes + bytes, is_guard),
                      "a kernel wrote past the end of array ", &array - arrays_.data());
      std::vector<char> now(block + kGuardBytes, block + kGuardBytes + bytes);
      if (array.output)
        outputs.push_back(std::move(now));
      else
        REQUIRE_MESSAGE(now == array.start, "a kernel changed its input, array ", &array - arrays_.data());
    }
    return outputs;
  }

 private:
  static constexpr char kGuard = static_cast<char>(0xff);  // four of them are a NaN
  static constexpr size_t kGuardBytes = 64;                // keeps the context's alignment

  struct Array {
    std::shared_ptr<Storage> storage;
    std::vector<char> start;
    bool output;
  };

  template <typename T>
  View add(const T* values, size_t n, bool output) {
    const size_t bytes = n * sizeof(T);
    Array array{Storage::create(context_, static_cast<int64_t>(bytes + 2 * kGuardBytes), MemoryCategory::workspace,
                                "test array"),
                std::vector<char>(bytes, kGuard), output};
    if (values && bytes) std::memcpy(array.start.data(), values, bytes);
    char* block = static_cast<char*>(array.storage->data());
    std::memset(block, 0xff, bytes + 2 * kGuardBytes);
    if (bytes) std::memcpy(block + kGuardBytes, array.start.data(), bytes);
    arrays_.push_back(std::move(array));
    return View(reinterpret_cast<T*>(block + kGuardBytes), static_cast<int64_t>(n));
  }

  Context& context_;
  std::vector<Array> arrays_;
};

// What a kernel wrote: outputs.get(0) is the first out() or inout().
class Outputs {
 public:
  explicit Outputs(std::vector<std::vector<char>> bytes) : bytes_(std::move(bytes)) {}
  template <typename T = float>
  std::vector<T> get(size_t i = 0) const {
    std::vector<T> values(bytes_.at(i).size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes_[i].data(), bytes_[i].size());
    return values;
  }
  const std::vector<std::vector<char>>& bytes() const { return bytes_; }

 private:
  std::vector<std::vector<char>> bytes_;
};

// Runs body(Buffers&) with 1, 2 and 3 threads on blocks 0, 4, 16 and 36 bytes past a multiple of 64, requires the same
// bytes each time, and returns them. Several outputs are made before the call: C++ fixes no order among arguments.
//   Outputs out = same_bits([&](Buffers& b) {
//     View y = b.out(n), mean = b.out(rows);
//     b.kernels().some_kernel(y, mean, b.in(x));
//   });
template <typename Body>
Outputs same_bits(Body&& body) {
  std::vector<std::vector<char>> first;
  for (int threads : {1, 2, 3}) {
    for (int misalign : {0, 4, 16, 36}) {
      Context context(make_cpu_backend({.threads = threads, .misalign = misalign, .poison = true}));
      Buffers buffers(context);
      body(buffers);
      auto outputs = buffers.finish();
      if (first.empty()) first = outputs;
      REQUIRE_MESSAGE(outputs == first, "other bits with ", threads, " threads and blocks shifted by ", misalign);
    }
  }
  return Outputs(std::move(first));
}

// Tests that a kernel refuses its arguments, and that the message holds `word`.
template <typename Body>
void expect_error(Body&& body, const std::string& word) {
  try {
    body();
  } catch (const Error& error) {
    REQUIRE_MESSAGE(std::string(error.what()).find(word) != std::string::npos, "expected '", word,
                    "' in: ", error.what());
    return;
  }
  FAIL("no error; expected one that says '", word, "'");
}

}  // namespace trencadis::test
