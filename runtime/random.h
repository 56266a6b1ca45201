// Random numbers without state: every draw is a function of a key and a counter.
//
// Why: a generator that is advanced by use would have to be saved, moved between ranks and kept in step with how work
// is cut up. Here the number that belongs to (seed, what for, which element) is the same on any rank, in any order.
// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trencadis {

// Four 32-bit words from a 128-bit counter and a 64-bit key. In plain words, not in the array's: tests are compiled without
// optimisation under the sanitizers, and spent most of their time in its operator[].
constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, uint64_t key) {
  uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * x0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * x2;
    x0 = static_cast<uint32_t>(p1 >> 32) ^ x1 ^ k0;
    x1 = static_cast<uint32_t>(p1);
    x2 = static_cast<uint32_t>(p0 >> 32) ^ x3 ^ k1;
    x3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {x0, x1, x2, x3};
}

// A bijective mix of 64 bits (splitmix64's finaliser, Stafford's variant 13).
constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// A key from several parts, order included.
template <typename... Parts>
constexpr uint64_t random_key(Parts... parts) {
  uint64_t key = 0;
  ((key = mix64(key + 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(parts))), ...);
  return key;
}

// FNV-1a: turns a name (of a parameter, of a dropout site) into a part of a key.
constexpr uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

// Where a dropout mask comes from. Element e of sample s is dropped when word (e mod 4) of
// philox({e/4 low, e/4 high, s low, s high}, random_key(seed, step, site)) is below probability * 2^32, s being counted
// over the whole training (first_sample + index in the batch). So the mask does not depend on ranks,
// micro-batches or recomputing.
struct DropoutMask {
  float probability = 0;  // 0: no dropout
  uint64_t seed = 0;
  int64_t step = 0;
  uint64_t site = 0;  // hash_name of the module
  int64_t first_sample = 0;

  constexpr uint64_t key() const { return random_key(seed, static_cast<uint64_t>(step), site); }
  // Words below this are dropped.
  constexpr uint32_t threshold() const {
    const double t = static_cast<double>(probability) * 4294967296.0;
    return t >= 4294967295.0 ? 4294967295u : static_cast<uint32_t>(t);
  }
  constexpr float scale() const { return 1.0f / (1.0f - probability); }
};

}  // namespace trencadis
