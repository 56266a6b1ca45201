// What the tests of CUDA kernels share: a kernel call, stated once, runs on the device and by the CPU's kernels.
//
//   const auto call = [&](auto& b) {
//     View y = b.values_out(n);
//     b.kernels().some_kernel(y, b.values_in(x), b.in(ids));
//   };
//   for (DType type : kFloatTypes) {
//     const Result got = on_device(type, call), want = on_cpu(type, call);
//     CHECK(error_ratio(got, want, 0, 1e-6) <= 1);
//   }
//
// values_ are arrays of the element type; the others have the type of the vector. The CPU's kernels know f32 only: for
// bf16 they compute in f32 on the inputs rounded to bf16, and the bound on the error has a rounding of the result
// added.
//
// on_device() runs the call on aligned blocks twice, and on blocks shifted by one element, and wants the same bits: a
// kernel's order of sums depends on shapes alone. Memory is poisoned and has guard zones (device_block.h). In which
// order threads run is a matter of the process: ctest runs the simulator's program once for each (TRENCADIS_SIM_ORDER).
#pragma once

#include <functional>

#include "device_block.h"
#include "runtime/kernel_test.h"  // last: doctest's CHECK replaces the project's

namespace trencadis::test {

inline const std::vector<DType> kFloatTypes = {DType::f32, DType::bf16};

// Output arrays of one call.
class Result {
 public:
  void add(std::vector<char> bytes, DType type) {
    bytes_.push_back(std::move(bytes));
    types_.push_back(type);
  }
  template <typename T>
  std::vector<T> get(size_t i) const {
    REQUIRE(types_.at(i) == dtype_of<T>());
    std::vector<T> values(bytes_[i].size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes_[i].data(), bytes_[i].size());
    return values;
  }
  // f32 or bf16 as f32.
  std::vector<float> values(size_t i = 0) const {
    if (types_.at(i) == DType::f32) return get<float>(i);
    std::vector<float> values;
    for (bf16 value : get<bf16>(i)) values.push_back(static_cast<float>(value));
    return values;
  }
  DType type(size_t i) const { return types_.at(i); }
  const std::vector<std::vector<char>>& bytes() const { return bytes_; }

 private:
  std::vector<std::vector<char>> bytes_;
  std::vector<DType> types_;
};

// -- the device -------------------------------------------------------------------------------------------------------

// The arrays of one kernel call on the device.
class DeviceArrays {
 public:
  // shift: elements by which every array is moved off its alignment; exact: nothing lies behind arrays.
  DeviceArrays(DType type, size_t shift, bool exact)
      : type_(type),
        shift_(shift),
        exact_(exact),
        products_(stream_.get(), false),
        scratch_(stream_.get(), exact),
        kernels_(stream_.get(), products_, scratch_) {}

  Kernels& kernels() { return kernels_; }
  cudaStream_t stream() { return stream_.get(); }
  Allocator& scratch() { return scratch_; }
  CublasHandle& products() { return products_; }
  DType type() const { return type_; }

  template <typename T>
  View in(const std::vector<T>& values) {
    return add(values.data(), static_cast<int64_t>(values.size()), false);
  }
  template <typename T = float>
  View out(int64_t n) {
    return add<T>(nullptr, n, true);
  }
  template <typename T>
  View inout(const std::vector<T>& values) {
    return add(values.data(), static_cast<int64_t>(values.size()), true);
  }
  View values_in(const std::vector<float>& values) { return type_ == DType::f32 ? in(values) : in(rounded(values)); }
  View values_out(int64_t n) { return type_ == DType::f32 ? out(n) : out<bf16>(n); }
  View values_inout(const std::vector<float>& values) {
    return type_ == DType::f32 ? inout(values) : inout(rounded(values));
  }

  // Waits for the device; checks guards and inputs.
  Result finish() {
    stream_.synchronize();
    Result result;
    for (const Array& array : arrays_) {
      const auto number = &array - arrays_.data();
      REQUIRE_MESSAGE(array.block->guards_hold(), "a kernel wrote outside of array ", number);
      auto now = array.block->read();
      if (array.output)
        result.add(std::move(now), array.type);
      else
        REQUIRE_MESSAGE(now == array.start, "a kernel changed its input, array ", number);
    }
    REQUIRE_MESSAGE(scratch_.guards_hold(), "a kernel wrote outside of its scratch memory");
    return result;
  }

 private:
  struct Array {
    std::unique_ptr<DeviceBlock> block;
    std::vector<char> start;
    DType type;
    bool output;
  };

  static std::vector<bf16> rounded(const std::vector<float>& values) {
    std::vector<bf16> result;
    for (float value : values) result.push_back(bf16(value));
    return result;
  }
  template <typename T>
  View add(const T* values, int64_t n, bool output) {
    const size_t bytes = static_cast<size_t>(n) * sizeof(T);
    Array array{std::make_unique<DeviceBlock>(stream_.get(), bytes, shift_ * sizeof(T), exact_),
                std::vector<char>(bytes, static_cast<char>(0xff)), dtype_of<T>(), output};
    if (values && bytes) std::memcpy(array.start.data(), values, bytes);
    array.block->write(array.start.data());
    arrays_.push_back(std::move(array));
    return View(reinterpret_cast<T*>(arrays_.back().block->data()), n);
  }

  DType type_;
  size_t shift_;
  bool exact_;
  TestStream stream_;
  CublasHandle products_;
  TestScratch scratch_;
  CudaKernels kernels_;
  std::vector<Array> arrays_;
};

// body(DeviceArrays&) in three runs that must give the same bytes.
template <typename Body>
Result on_device(DType type, Body&& body) {
  Result first;
  for (int run = 0; run < 3; ++run) {
    DeviceArrays arrays(type, run == 2 ? 1 : 0, run == 2);
    body(arrays);
    Result result = arrays.finish();
    if (run == 0)
      first = std::move(result);
    else
      REQUIRE_MESSAGE(result.bytes() == first.bytes(), "other bits ",
                      run == 1 ? "when repeated" : "at other addresses");
  }
  return first;
}

// -- the CPU ----------------------------------------------------------------------------------------------------------

// The same arrays for the CPU's kernels: values are f32, rounded to bf16 at the start if that is the element type.
class CpuArrays {
 public:
  CpuArrays(DType type, Context& context) : type_(type), buffers_(context) {}

  Kernels& kernels() { return buffers_.kernels(); }
  DType type() const { return type_; }
  template <typename T>
  View in(const std::vector<T>& values) {
    return buffers_.in(values);
  }
  template <typename T = float>
  View out(int64_t n) {
    types_.push_back(dtype_of<T>());
    return buffers_.template out<T>(n);
  }
  template <typename T>
  View inout(const std::vector<T>& values) {
    types_.push_back(dtype_of<T>());
    return buffers_.inout(values);
  }
  View values_in(const std::vector<float>& values) { return in(rounded(values)); }
  View values_out(int64_t n) { return out(n); }
  View values_inout(const std::vector<float>& values) { return inout(rounded(values)); }

  Result finish() {
    Result result;
    auto bytes = buffers_.finish();
    for (size_t i = 0; i < bytes.size(); ++i) result.add(std::move(bytes[i]), types_[i]);
    return result;
  }

 private:
  std::vector<float> rounded(std::vector<float> values) const {
    if (type_ == DType::bf16)
      for (float& value : values) value = static_cast<float>(bf16(value));
    return values;
  }

  DType type_;
  Buffers buffers_;
  std::vector<DType> types_;
};

template <typename Body>
Result on_cpu(DType type, Body&& body) {
  Context context(make_cpu_backend({.threads = 1, .poison = true}));
  CpuArrays arrays(type, context);
  body(arrays);
  return arrays.finish();
}

// -- bounds -----------------------------------------------------------------------------------------------------------

// The largest error of output i, in units of what is allowed: for the arithmetic f32_bound times the largest value (or
// `scale`, if that is larger: where terms cancel, errors are those of the terms), and where the output is bf16, 2^-8 of
// the value itself for its rounding (to nearest: half of that; the rest for a tie that the arithmetic's error moved).
// Infinite where only one of the two is finite, or sizes differ.
inline double error_ratio(const Result& got, const Result& want, size_t i, double f32_bound, double scale = 0) {
  const std::vector<float> a = got.values(i), b = want.values(i);
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kInfinite;
  double largest = std::max<double>(scale, std::numeric_limits<float>::min()), worst = 0;
  for (float value : b)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(static_cast<double>(value)));
  for (size_t k = 0; k < a.size(); ++k) {
    const double x = static_cast<double>(a[k]), y = static_cast<double>(b[k]);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (!std::isfinite(x) || !std::isfinite(y)) return kInfinite;
    const double rounding = got.type(i) == DType::bf16 ? std::abs(y) / 256 : 0;
    worst = std::max(worst, std::abs(x - y) / (f32_bound * largest + rounding));
  }
  return worst;
}

// Whether one number is as it should be: both NaN, equal (infinities too), or close.
inline bool close(float got, float want, double relative) {
  if (std::isnan(want)) return std::isnan(got);
  return got == want || std::abs(static_cast<double>(got) - static_cast<double>(want)) <=
                            relative * std::abs(static_cast<double>(want));
}

// Whether output i is what the CPU computed, rounded once if it is bf16: for kernels with one order of operations.
inline bool same_values(const Result& got, const Result& want, size_t i = 0) {
  std::vector<float> expected = want.values(i);
  if (got.type(i) == DType::bf16)
    for (float& value : expected) value = static_cast<float>(bf16(value));
  return got.values(i) == expected;
}

}  // namespace trencadis::test
