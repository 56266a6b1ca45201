// runtime/random.h on the device: the same words, hence the same dropout masks and weights as on the CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "runtime/random.h"

namespace trencadis {

// philox() of runtime/random.h: x, y, z, w are words 0 to 3. A product of two 32-bit words is one instruction.
__device__ inline uint4 philox_words(uint4 counter, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter.x;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter.z;
    counter = make_uint4(static_cast<uint32_t>(p1 >> 32) ^ counter.y ^ k0, static_cast<uint32_t>(p1),
                         static_cast<uint32_t>(p0 >> 32) ^ counter.w ^ k1, static_cast<uint32_t>(p0));
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

// A DropoutMask as a kernel takes it: what depends on the mask alone is computed once, on the host.
struct DropoutFactors4 {
  uint64_t key, first_sample;
  uint32_t threshold;
  float scale;

  explicit DropoutFactors4(const DropoutMask& mask)
      : key(mask.key()),
        first_sample(static_cast<uint64_t>(mask.first_sample)),
        threshold(mask.threshold()),
        scale(mask.scale()) {}

  // The factors of elements 4*quad to 4*quad + 3 of a sample of the batch: 0 where dropped, 1/(1-p) where kept.
  __device__ float4 factors(int64_t sample_in_batch, int64_t quad) const {
    const uint64_t sample = first_sample + static_cast<uint64_t>(sample_in_batch);
    const uint64_t counter = static_cast<uint64_t>(quad);
    const uint4 words = philox_words(make_uint4(static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                                                static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32)),
                                     key);
    return make_float4(factor(words.x), factor(words.y), factor(words.z), factor(words.w));
  }

  __device__ float factor(uint32_t word) const { return word < threshold ? 0.0f : scale; }
};

}  // namespace trencadis
