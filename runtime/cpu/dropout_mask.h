// The dropout mask of runtime/random.h as factors, many elements at a time: for dropout() and
// for attention's probabilities.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/random.h"

namespace trencadis {

// Factors of consecutive elements of one sample: 0 where dropped, 1/(1-p) where kept.
class DropoutFactors {
 public:
  DropoutFactors(const DropoutMask& mask, int64_t sample_in_batch)
      : key_(mask.key()),
        sample_(static_cast<uint64_t>(mask.first_sample + sample_in_batch)),
        threshold_(mask.threshold()),
        scale_(mask.scale()) {}

  // factors[i] belongs to element first + i, for i in [0, n).
  void write(float* factors, int64_t first, int64_t n) const {
    float group[kGroup];
    for (int64_t begin = first & ~int64_t{3}; begin < first + n; begin += kGroup) {
      const int64_t from = std::max(begin, first), to = std::min(begin + kGroup, first + n);
      if (to - from == kGroup) {
        write_group(factors + (begin - first), begin);
      } else {
        write_group(group, begin);
        std::copy(group + (from - begin), group + (to - begin), factors + (from - first));
      }
    }
  }

 private:
  // Sixteen counters at once, one lane each: plain loops over lanes, which compilers turn into vector code. Integers
  // have the same bits whatever the compiler does with them.
  static constexpr int kLanes = 16;
  static constexpr int64_t kGroup = 4 * kLanes;

  void write_group(float* factors, int64_t first) const {
    uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t counter = static_cast<uint64_t>(first) / 4 + static_cast<uint64_t>(i);
      c0[i] = static_cast<uint32_t>(counter);
      c1[i] = static_cast<uint32_t>(counter >> 32);
      c2[i] = static_cast<uint32_t>(sample_);
      c3[i] = static_cast<uint32_t>(sample_ >> 32);
    }
    // philox() of runtime/random.h, its rounds outside and the lanes inside.
    uint32_t k0 = static_cast<uint32_t>(key_), k1 = static_cast<uint32_t>(key_ >> 32);
    for (int round = 0; round < 10; ++round) {
      for (int i = 0; i < kLanes; ++i) {
        const uint64_t p0 = uint64_t{0xD2511F53u} * c0[i];
        const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2[i];
        c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
        c1[i] = static_cast<uint32_t>(p1);
        c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
        c3[i] = static_cast<uint32_t>(p0);
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < kLanes; ++i) {
      factors[4 * i + 0] = c0[i] < threshold_ ? 0.0f : scale_;
      factors[4 * i + 1] = c1[i] < threshold_ ? 0.0f : scale_;
      factors[4 * i + 2] = c2[i] < threshold_ ? 0.0f : scale_;
      factors[4 * i + 3] = c3[i] < threshold_ ? 0.0f : scale_;
    }
  }

  uint64_t key_, sample_;
  uint32_t threshold_;
  float scale_;
};

}  // namespace trencadis
