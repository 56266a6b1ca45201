// The pieces of a gradient norm that is the same to the bit for every way of cutting the data.
//
// A sum of floats depends on its order, and ranks, threads and shards each have another. So the norm is made of the two
// reductions that have no order: a maximum, and a sum of integers. Squares of g * (1 / max |g|) lie in [0, 1] and are
// counted in fixed point. The maximum compares bit patterns: those of non-negative floats order like their values, with
// inf and then NaN above all, so that it is also the finite check.
#include <bit>
#include <cmath>

#include "runtime/cpu/argument.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/vec.h"

namespace trencadis {

namespace {
constexpr int64_t kGrain = 16384;  // elements of a chunk at least
constexpr int64_t kMaxChunks = 64;
}  // namespace

void CpuKernels::max_abs(View out, ConstView x) {
  int64_t* result = argument<int64_t>("max_abs", "out", out, 1);
  const float* in = argument<float>("max_abs", "x", x, x.size);
  const Chunks chunks(x.size, kGrain);
  int32_t part[kMaxChunks] = {};
  pool_.run(chunks.count, [&](int64_t chunk) {
    const int64_t begin = chunks.begin(chunk);
    vec::I32 largest = 0;
    vec::for_lanes(chunks.end(chunk, x.size) - begin, [&](int64_t i, int64_t lanes) {
      largest = vec::max(largest, vec::bits(vec::abs(vec::load(in + begin + i, lanes))));
    });
    part[chunk] = vec::max_of(largest);
  });
  int64_t top = read_word(result, 0);
  for (int64_t c = 0; c < chunks.count; ++c) top = std::max<int64_t>(top, part[c]);
  write_word(result, 0, top);
}

void CpuKernels::sum_squares(View out, ConstView x, ConstView max_bits) {
  int64_t* result = argument<int64_t>("sum_squares", "out", out, 2);
  const float* in = argument<float>("sum_squares", "x", x, x.size);
  const int64_t word = read_word(argument<int64_t>("sum_squares", "max_bits", max_bits, 1), 0);
  const float largest = std::bit_cast<float>(static_cast<uint32_t>(word));
  if (!(largest > 0) || !std::isfinite(largest)) return;

  const double inverse = 1.0 / largest, unit = 1 / kSquareUnit;  // the largest times its inverse rounds to 1 at most
  const Chunks chunks(x.size, kGrain);
  int64_t high[kMaxChunks] = {}, low[kMaxChunks] = {};
  pool_.run(chunks.count, [&](int64_t chunk) {
    const int64_t begin = chunks.begin(chunk);
    int64_t sum_high = 0, sum_low = 0;
    vec::for_lanes(chunks.end(chunk, x.size) - begin, [&](int64_t first, int64_t lanes) {
      const float* values = in + begin + first;
      vec::ask_ahead(values);
      for (int64_t i = 0; i < lanes; ++i) {
        const double r = values[i] * inverse;
        const double square = r * r * unit;
        // Both words are at most 2^28, and not negative: converting to int32 is floor, and one instruction.
        const int32_t whole = static_cast<int32_t>(square);
        const int32_t rest = static_cast<int32_t>((square - whole) * unit);
        sum_high += whole;
        sum_low += rest;
      }
    });
    high[chunk] = sum_high;
    low[chunk] = sum_low;
  });
  for (int64_t c = 0; c < chunks.count; ++c) {
    write_word(result, 0, read_word(result, 0) + high[c]);
    write_word(result, 1, read_word(result, 1) + low[c]);
  }
}

}  // namespace trencadis
