// Element types and the one place that turns a run-time DType into a C++ type.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "runtime/check.h"

namespace trencadis {

// bfloat16: the upper half of an IEEE-754 binary32. Conversion rounds to nearest, ties to even; NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;

  bf16() = default;
  explicit bf16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u)
      bits = static_cast<uint16_t>((u >> 16) | 0x0040u);
    else
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

// f32, bf16: tensors. i32: token ids. i64, f64: counts, norms and what ranks tell each other.
enum class DType { f32, bf16, i32, i64, f64 };

constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 2;
    case DType::f32:
    case DType::i32:
      return 4;
    default:
      return 8;
  }
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    default:
      return "f64";
  }
}

template <typename T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<bf16>() {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::i32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::i64;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::f64;
}

// Calls f with a value of the C++ type that dtype names:
//   dispatch(dt, [&](auto zero) { using T = decltype(zero); ... })
template <typename F>
decltype(auto) dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return std::forward<F>(f)(float{});
    case DType::bf16:
      return std::forward<F>(f)(bf16{});
    case DType::i32:
      return std::forward<F>(f)(int32_t{});
    case DType::i64:
      return std::forward<F>(f)(int64_t{});
    default:
      return std::forward<F>(f)(double{});
  }
}

}  // namespace trencadis
