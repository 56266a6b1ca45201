// How the CPU walks a loop: ranges for the threads, cut by the number of elements alone, and in a range runs along the
// innermost dimension, at any steps.
#pragma once

#include "runtime/cpu/vec.h"
#include "runtime/loop.h"
#include "runtime/thread_pool.h"

namespace trencadis {

inline constexpr int64_t kGrainBytes = 64 * 1024;
inline constexpr int64_t kGrain = kGrainBytes / 4;  // f32 elements

// body(first, last) for consecutive ranges of [0, n).
template <typename Body>
void for_ranges(ThreadPool& pool, int64_t n, int64_t grain, const Body& body) {
  const Chunks chunks(n, grain);
  pool.run(chunks.count, [&](int64_t chunk) { body(chunks.begin(chunk), chunks.end(chunk, n)); });
}

// Where a run stands: the place of its first element in each array, and the steps from there to the next.
template <int kArrays>
struct Run {
  int64_t at[kArrays], step[kArrays];
};

// body(first, length, run) for the runs that make up the visits [first, last) of a loop, in order.
template <int kArrays, typename Body>
void for_runs(const BasicLoop<kArrays>& loop, int64_t first, int64_t last, const Body& body) {
  Run<kArrays> run = {};
  if (loop.rank == 0) {  // one visit
    if (first < last) body(first, int64_t{1}, run);
    return;
  }
  const int inner = loop.rank - 1;
  int64_t index[kMaxRank] = {}, rest = first;
  for (int d = inner; d >= 0 && first < last; --d) {
    index[d] = rest % loop.size[d];
    rest /= loop.size[d];
    for (int k = 0; k < kArrays; ++k) run.at[k] += index[d] * loop.step[k][d];
  }
  for (int k = 0; k < kArrays; ++k) run.step[k] = loop.step[k][inner];
  while (first < last) {
    const int64_t length = std::min(loop.size[inner] - index[inner], last - first);
    body(first, length, run);
    first += length;
    // To the start of the next run: the innermost index is 0 again, the others count on.
    for (int k = 0; k < kArrays; ++k) run.at[k] -= index[inner] * run.step[k];
    index[inner] = 0;
    for (int d = inner - 1; d >= 0; --d) {
      for (int k = 0; k < kArrays; ++k) run.at[k] += loop.step[k][d];
      if (++index[d] < loop.size[d]) break;
      for (int k = 0; k < kArrays; ++k) run.at[k] -= loop.size[d] * loop.step[k][d];
      index[d] = 0;
    }
  }
}

// `lanes` elements from p on that are `step` apart; with step 0 the same one. The other lanes hold anything.
[[gnu::always_inline]] inline vec::F32 load_steps(const float* p, int64_t step, int64_t lanes) {
  if (step == 1) return vec::load(p, lanes);
  if (step == 0) return *p;
  float x[vec::kLanes] = {};
  for (int64_t i = 0; i < lanes; ++i) x[i] = p[i * step];
  return vec::load(x);
}

}  // namespace trencadis
