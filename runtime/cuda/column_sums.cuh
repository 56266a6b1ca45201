// Sums over all rows of an (N,K) matrix in two stages: gradients of biases, of gamma and of beta.
//
// Stage one is a kernel's own: its blocks cut the rows into chunks, by shape alone, and each writes its K partial sums
// in f32 to scratch memory. Stage two, here, adds the chunks up in one order. An atomicAdd on floats would save the
// scratch and the second kernel, and would give other bits each time: atomics happen in the order of arrival.
#pragma once

#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/types.cuh"

namespace trencadis {

// The cut of N rows: chunks of at least least_rows rows, and at most most_chunks of them.
struct RowChunks {
  int64_t rows;   // of a chunk; the last one may have fewer
  int64_t count;  // 0 when there are no rows

  RowChunks(int64_t N, int64_t least_rows, int64_t most_chunks)
      : rows(std::max(least_rows, divide_up(N, most_chunks))), count(divide_up(N, rows)) {}
};

// out_k = sum over chunks of partials (chunks,K), or out_k + (that sum): a gradient is complete before it is added to
// another. T is float or __nv_bfloat16.
template <typename T>
void add_partials(cudaStream_t stream, T* out, const float* partials, int64_t chunks, int64_t K, bool accumulate);

}  // namespace trencadis
