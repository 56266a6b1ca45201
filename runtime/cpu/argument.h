// How a CPU kernel opens its arguments: views (runtime/argument.h), and the words of losses and norms.
#pragma once

#include <cstring>

#include "runtime/argument.h"

namespace trencadis {

// The i64 words of losses and norms. Blocks may start at any multiple of 4 (CpuOptions::misalign), where int64_t's own
// load and store are undefined.
inline int64_t read_word(const int64_t* words, int64_t i) {
  int64_t value;
  std::memcpy(&value, words + i, sizeof value);
  return value;
}
inline void write_word(int64_t* words, int64_t i, int64_t value) { std::memcpy(words + i, &value, sizeof value); }

}  // namespace trencadis
