// Embedding of tokens and positions, and its backward pass.
//
// Backward scatters: two tokens may add to one row. Threads therefore share out columns, not tokens, and each passes
// over all tokens in ascending order: no two threads touch one number, and every sum has one order.
#include <cstring>

#include "runtime/cpu/argument.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/vec.h"

namespace trencadis {

using vec::F32;

namespace {

void check_ids(const char* kernel, const int32_t* ids, int64_t n, int64_t V) {
  for (int64_t i = 0; i < n; ++i)
    CHECK(ids[i] >= 0 && ids[i] < V, "{}: token {} is {}, outside a vocabulary of {}", kernel, i, ids[i], V);
}

}  // namespace

void CpuKernels::embedding(View y, ConstView ids, ConstView wte, ConstView wpe, int64_t B, int64_t T, int64_t C,
                           int64_t V) {
  float* out = argument<float>("embedding", "y", y, B * T * C);
  const int32_t* tokens = argument<int32_t>("embedding", "ids", ids, B * T);
  const float* token_table = argument<float>("embedding", "wte", wte, V * C);
  const float* position_table = argument<float>("embedding", "wpe", wpe, T * C);
  check_ids("embedding", tokens, B * T, V);
  const Chunks chunks(B * T, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, C)));
  pool_.run(chunks.count, [&](int64_t chunk) {
    for (int64_t n = chunks.begin(chunk); n < chunks.end(chunk, B * T); ++n) {
      const float *token = token_table + tokens[n] * C, *position = position_table + n % T * C;
      for (int64_t c = 0; c < C; ++c) out[n * C + c] = token[c] + position[c];
    }
  });
}

void CpuKernels::embedding_backward(View dwte, View dwpe, ConstView ids, ConstView dy, int64_t B, int64_t T, int64_t C,
                                    int64_t V, int64_t positions, bool accumulate_wte, bool accumulate_wpe) {
  const char* kernel = "embedding_backward";
  float* token_table = dwte ? argument<float>(kernel, "dwte", dwte, V * C) : nullptr;
  float* position_table = dwpe ? argument<float>(kernel, "dwpe", dwpe, positions * C) : nullptr;
  const int32_t* tokens = argument<int32_t>(kernel, "ids", ids, B * T);
  const float* in = argument<float>(kernel, "dy", dy, B * T * C);
  CHECK(T <= positions, "{}: a sequence of {} tokens, but only {} positions", kernel, T, positions);
  check_ids(kernel, tokens, B * T, V);

  if (dwte && !accumulate_wte) zero(dwte.slice(0, V * C));
  const Chunks columns(dwte ? C : 0, 64);
  pool_.run(columns.count, [&](int64_t chunk) {
    const int64_t first = columns.begin(chunk), last = columns.end(chunk, C);
    for (int64_t n = 0; n < B * T; ++n) {
      float* row = token_table + tokens[n] * C;
      for (int64_t c = first; c < last; ++c) row[c] += in[n * C + c];
    }
  });

  if (dwpe && !accumulate_wpe) zero(dwpe.slice(T * C, (positions - T) * C));
  const Chunks rows(dwpe ? T : 0, 16);
  pool_.run(rows.count, [&](int64_t chunk) {
    for (int64_t t = rows.begin(chunk); t < rows.end(chunk, T); ++t) {
      float* row = position_table + t * C;
      vec::for_lanes(C, [&](int64_t c, int64_t lanes) {
        F32 sum = 0.0f;
        for (int64_t b = 0; b < B; ++b) sum += vec::load(in + (b * T + t) * C + c, lanes);
        vec::store(row + c, accumulate_wpe ? vec::load(row + c, lanes) + sum : sum, lanes);
      });
    }
  });
}

}  // namespace trencadis
