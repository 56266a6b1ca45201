// How a CPU kernel opens a view: the pointer, once type and size are known to be right.
#pragma once

#include <cstring>

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

// The i64 words of losses and norms. Blocks may start at any multiple of 4 (CpuOptions::misalign), where int64_t's own
// load and store are undefined.
inline int64_t read_word(const int64_t* words, int64_t i) {
  int64_t value;
  std::memcpy(&value, words + i, sizeof value);
  return value;
}
inline void write_word(int64_t* words, int64_t i, int64_t value) { std::memcpy(words + i, &value, sizeof value); }

}  // namespace trencadis
