// Tiles of heads: what ladder/attention_fast.cu and the backward pass (attention.cu) are made of.
//
// A block has 128 threads and owns kRows = 16 * kR rows (queries, or keys when their gradients are summed). Tiles of
// kColumns rows of the other kind pass by in shared memory. Thread (across, down) = (threadIdx.x % 8, threadIdx.x / 8)
// computes scores of rows kR*down .. +kR-1 with columns across, across + 8, ...: a row of scores lies in 8 neighbouring
// lanes, a warp owns 4 * kR rows, and the tile of probabilities that they share needs no barrier beyond the warp.
//
// Invariants: all of a tile is written, zeros where the array ends, so a product may read all of it; rows in shared
// memory start at multiples of 16 bytes, and 4 banks further than the row before (8 rows read at once do not conflict).
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "runtime/cuda/philox.cuh"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/types.cuh"

namespace trencadis {

// AttentionShape as kernels take it. Strides of gradients are those of their values.
struct AttentionSizes {
  int T, H, H_kv, D;
  int64_t q_stride, k_stride, v_stride, o_stride;
  float scale;
  bool vectors;  // every row of every head starts at a multiple of 16 bytes
  bool masked;   // dropout is on
  DropoutFactors4 dropout;

  // Where head h of token t of sample b starts.
  __host__ __device__ int64_t at(int64_t stride, int64_t b, int64_t t, int64_t h) const {
    return (b * T + t) * stride + h * D;
  }
  // The factor of probability (i, j) of head h of sample b: 0 or 1 / (1 - p).
  __device__ float keep(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t element = (h * T + i) * T + j;
    const float4 factors = dropout.factors(b, element / 4);
    return element & 2 ? (element & 1 ? factors.w : factors.z) : (element & 1 ? factors.y : factors.x);
  }
};

namespace attention_tiles {

constexpr int kThreads = 128;
constexpr int kAcross = 8;                  // threads that share a row
constexpr int kColumns = 32;                // of a tile of scores
constexpr int kMine = kColumns / kAcross;   // columns of a thread
constexpr int kScoreStride = kColumns + 4;  // of a tile of probabilities in shared memory

// From row to row of a tile of heads, in floats. kD is the bound of the head size.
template <int kD>
constexpr int kStride = kD + 4;

__device__ inline int across() { return static_cast<int>(threadIdx.x) % kAcross; }
__device__ inline int down() { return static_cast<int>(threadIdx.x) / kAcross; }

// Over the 8 lanes that share a row.
__device__ inline float row_max(float x) {
  for (int lane = kAcross / 2; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lane));
  return x;
}
__device__ inline float row_sum(float x) {
  for (int lane = kAcross / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(kAllLanes, x, lane);
  return x;
}

// Rows [first, first + kCount) of one head, as floats. Rows from s.T on and columns from s.D on become 0.
template <int kCount, int kD, typename T>
__device__ void load_rows(float* tile, const T* head, int64_t stride, int first, const AttentionSizes& s) {
  constexpr int kGroups = kD / kGroup<T>;  // of a row
  for (int i = static_cast<int>(threadIdx.x); i < kCount * kGroups; i += kThreads) {
    const int row = i / kGroups, column = i % kGroups * kGroup<T>;
    const T* from = head + (first + row) * stride + column;
    const int elements = first + row < s.T ? s.D - column : 0;
    const Group<T> group = s.vectors ? load_group<true>(from, elements) : load_group<false>(from, elements);
    float* to = tile + row * kStride<kD> + column;
#pragma unroll
    for (int e = 0; e < kGroup<T>; e += 4)
      *reinterpret_cast<float4*>(to + e) = make_float4(group.v[e], group.v[e + 1], group.v[e + 2], group.v[e + 3]);
  }
}

// scores[r][c] = row kR*down + r of `rows` times row across + 8c of `columns`.
template <int kR, int kD>
__device__ void dot_rows(float (&scores)[kR][kMine], const float* rows, const float* columns) {
#pragma unroll
  for (int r = 0; r < kR; ++r)
#pragma unroll
    for (int c = 0; c < kMine; ++c) scores[r][c] = 0;
  const float* my_rows = rows + kR * down() * kStride<kD>;
  const float* my_columns = columns + across() * kStride<kD>;
#pragma unroll 2
  for (int d = 0; d < kD; d += 4) {
    float4 column[kMine];
#pragma unroll
    for (int c = 0; c < kMine; ++c)
      column[c] = *reinterpret_cast<const float4*>(my_columns + kAcross * c * kStride<kD> + d);
#pragma unroll
    for (int r = 0; r < kR; ++r) {
      const float4 row = *reinterpret_cast<const float4*>(my_rows + r * kStride<kD> + d);
#pragma unroll
      for (int c = 0; c < kMine; ++c) {
        scores[r][c] = fmaf(row.x, column[c].x, scores[r][c]);
        scores[r][c] = fmaf(row.y, column[c].y, scores[r][c]);
        scores[r][c] = fmaf(row.z, column[c].z, scores[r][c]);
        scores[r][c] = fmaf(row.w, column[c].w, scores[r][c]);
      }
    }
  }
}

// Four neighbours, in one store.
template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T v[4];
};

// Sums of a thread: rows kR*down + r, columns 4 * (across + 8g) .. +3 of the head.
template <int kR, int kD>
struct RowSums {
  static constexpr int kGroups = kD / (4 * kAcross);
  float4 at[kR][kGroups];

  __device__ void clear() {
#pragma unroll
    for (int r = 0; r < kR; ++r)
#pragma unroll
      for (int g = 0; g < kGroups; ++g) at[r][g] = make_float4(0, 0, 0, 0);
  }

  __device__ void scale(int r, float factor) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      at[r][g].x *= factor;
      at[r][g].y *= factor;
      at[r][g].z *= factor;
      at[r][g].w *= factor;
    }
  }

  // += weights (rows, kColumns) * values (kColumns, kD), columns of the weights in ascending order.
  __device__ void add_product(const float* weights, const float* values) {
    const float* my_weights = weights + kR * down() * kScoreStride;
    const float* my_values = values + 4 * across();
#pragma unroll 2
    for (int c = 0; c < kColumns; ++c) {
      float4 value[kGroups];
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        value[g] = *reinterpret_cast<const float4*>(my_values + c * kStride<kD> + 4 * kAcross * g);
#pragma unroll
      for (int r = 0; r < kR; ++r) {
        const float weight = my_weights[r * kScoreStride + c];
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          at[r][g].x = fmaf(weight, value[g].x, at[r][g].x);
          at[r][g].y = fmaf(weight, value[g].y, at[r][g].y);
          at[r][g].z = fmaf(weight, value[g].z, at[r][g].z);
          at[r][g].w = fmaf(weight, value[g].w, at[r][g].w);
        }
      }
    }
  }

  // Row kR*down + r to row `t` of the head, where there is one.
  template <typename T>
  __device__ void store(T* head, int64_t stride, int r, int t, const AttentionSizes& s) const {
    if (t >= s.T) return;
    T* row = head + t * stride;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int column = 4 * (across() + kAcross * g);
      const Four<T> four = {from_float<T>(at[r][g].x), from_float<T>(at[r][g].y), from_float<T>(at[r][g].z),
                            from_float<T>(at[r][g].w)};
      if (s.vectors) {
        if (column < s.D) *reinterpret_cast<Four<T>*>(row + column) = four;
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (column + e < s.D) row[column + e] = four.v[e];
      }
    }
  }
};

// Rows of a block whose threads have kR each.
template <int kR>
constexpr int kBlockRows = kR* kThreads / kAcross;

// What a block works on: one tile of `rows` rows of one head of one sample. The blocks of the last tiles, whose queries
// see most keys, come first when `last_first`: the long ones should not begin when the others end.
struct BlockPlace {
  int b, h, first;
  __device__ BlockPlace(int heads, int T, int rows, bool last_first) {
    const int block = static_cast<int>(blockIdx.x), tiles = (T + rows - 1) / rows;
    const int samples = static_cast<int>(gridDim.x) / tiles / heads;
    const int tile = block / (samples * heads), place = block % (samples * heads);
    b = place / heads;
    h = place % heads;
    first = (last_first ? tiles - 1 - tile : tile) * rows;
  }
};

}  // namespace attention_tiles

}  // namespace trencadis
