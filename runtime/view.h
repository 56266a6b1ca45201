// View: a typed window on device memory that owns nothing. Kernels take views, so that they serve tensors, slices of a
// sharded buffer and plain test arrays alike. A Tensor converts to a View (and is checked to be readable by that).
#pragma once

#include <cstdint>

#include "runtime/dtype.h"

namespace trencadis {

namespace detail {
template <typename Void>
struct BasicView {
  Void* data = nullptr;
  DType dtype = DType::f32;
  int64_t size = 0;  // elements from data to the end of the window

  BasicView() = default;  // an empty view stands for an optional argument that is absent
  BasicView(Void* d, DType t, int64_t n) : data(d), dtype(t), size(n) {}
  template <typename T>
  BasicView(T* d, int64_t n) : data(d), dtype(dtype_of<std::remove_const_t<T>>()), size(n) {}

  explicit operator bool() const { return data != nullptr; }
  int64_t bytes() const { return size * size_of(dtype); }

  // The pointer as T*; throws Error when the elements are of another type.
  template <typename T>
  auto* as() const {
    using P = std::conditional_t<std::is_const_v<Void>, const T, T>;
    CHECK(dtype == dtype_of<T>(), "a view of {} is read as {}", name_of(dtype), name_of(dtype_of<T>()));
    return static_cast<P*>(data);
  }

  // The window [first, first + count).
  BasicView slice(int64_t first, int64_t count) const {
    CHECK(first >= 0 && count >= 0 && first + count <= size, "slice [{}, {}) of a view of {} elements", first,
          first + count, size);
    using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
    return {static_cast<Byte*>(data) + first * size_of(dtype), dtype, count};
  }
};
}  // namespace detail

using View = detail::BasicView<void>;

struct ConstView : detail::BasicView<const void> {
  using BasicView::BasicView;
  ConstView(const BasicView& v) : BasicView(v) {}
  ConstView(const View& v) : BasicView(v.data, v.dtype, v.size) {}
};

}  // namespace trencadis
