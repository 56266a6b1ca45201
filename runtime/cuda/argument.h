// The host side of a kernel: how it opens its views, picks the code for their type, and takes scratch memory.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "runtime/allocator.h"
#include "runtime/argument.h"

namespace trencadis {

// trencadis::bf16 and NVIDIA's type are the same 16 bits. A view may be read as either.
template <>
constexpr DType dtype_of<__nv_bfloat16>() {
  return DType::bf16;
}

// The elements of v as T (float, __nv_bfloat16, int32_t, int64_t); throws Error naming kernel and argument unless v
// holds at least n of them and starts at a multiple of T's size, as the GPU demands.
template <typename T, typename Void>
auto* device_argument(const char* kernel, const char* name, const detail::BasicView<Void>& v, int64_t n) {
  auto* const data = argument<T>(kernel, name, v, n);
  CHECK(reinterpret_cast<uintptr_t>(v.data) % sizeof(T) == 0, "{}: {} starts at {}, not at a multiple of {} bytes",
        kernel, name, static_cast<const void*>(v.data), sizeof(T));
  return data;
}

// The same for an argument that may be absent: null when v is empty.
template <typename T, typename Void>
auto* optional_argument(const char* kernel, const char* name, const detail::BasicView<Void>& v, int64_t n) {
  return v ? device_argument<T>(kernel, name, v, n) : nullptr;
}

// Calls f with a value of the C++ type that activations of this type have on the GPU:
//   dispatch_float("gelu", x.dtype, [&](auto zero) { using T = decltype(zero); ... })
template <typename F>
void dispatch_float(const char* kernel, DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(__nv_bfloat16{});
    default:
      CHECK(false, "{}: elements are {}, must be f32 or bf16", kernel, name_of(dtype));
  }
}

// Whether all of these start at a multiple of 16 bytes, the most that one instruction loads. Null does not object.
template <typename... T>
bool aligned16(const T*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

// n elements of device memory while this lives. Freed in stream order (see CudaKernels): it may be destroyed as soon as
// the last kernel that uses it is launched.
template <typename T>
class Scratch {
 public:
  Scratch(Allocator& allocator, int64_t n) : allocator_(allocator), bytes_(n * static_cast<int64_t>(sizeof(T))) {
    if (bytes_ > 0) data_ = static_cast<T*>(allocator_.allocate(bytes_));
  }
  ~Scratch() {
    if (data_) allocator_.free(data_, bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  T* data() const { return data_; }

 private:
  Allocator& allocator_;
  int64_t bytes_;
  T* data_ = nullptr;
};

}  // namespace trencadis
