// How a kernel opens a view: the pointer, once type and size are known to be right. The same on every device.
#pragma once

#include "runtime/view.h"

namespace trencadis {

// The elements of v as T; throws Error naming kernel and argument unless v holds at least n of them.
template <typename T, typename Void>
auto* argument(const char* kernel, const char* name, const detail::BasicView<Void>& v, int64_t n) {
  CHECK(v.dtype == dtype_of<T>(), "{}: {} is {}, must be {}", kernel, name, name_of(v.dtype), name_of(dtype_of<T>()));
  CHECK(n >= 0 && v.size >= n, "{}: {} has {} elements, {} are needed", kernel, name, v.size, n);
  CHECK(v.data || n == 0, "{}: {} is an empty view", kernel, name);
  return v.template as<T>();
}

}  // namespace trencadis
