// Rung 4 of attention: both products on tensor cores (bf16).
//
// A block owns 64 queries, a warp 16 of them: one row of mma results. For each tile of 64 keys a warp makes
// scores (16,64) = q k^T, turns them into probabilities where they are, and multiplies them by v.
//
// What makes it go: the results of an mma lie in the lanes as its left operand does. With g = lane / 4, t = lane % 4,
// a lane has of each (16,8) result: rows g and g + 8, columns 2t and 2t+1; of a (16,16) left operand: the same rows,
// columns 2t, 2t+1, 2t+8, 2t+9. Two results side by side, rounded to bf16, are the next left operand: the probabilities
// never leave the registers. A row lies in the 4 lanes of one g, so its maximum takes two shuffles.
//
//   scores, results j, j+1        left operand of p v
//   |  2t 2t+1 |  2t 2t+1 |  -->  | 2t 2t+1  2t+8 2t+9 |   rows g (and g + 8)
//
// The right operand wants pairs of neighbours along the summed index. k lies so (along D), v does not (along T): it is
// stored transposed.
#include "device/mma.h"
#include "device/shared_array.h"
#include "runtime/cuda/attention_arrays.h"
#include "runtime/cuda/ladder/attention.h"
#include "runtime/cuda/reduce.cuh"

namespace trencadis {

namespace {

using T = __nv_bfloat16;

constexpr int kThreads = 128;
constexpr int kRows = 16;  // queries of a warp
constexpr int kQueries = kThreads / kWarp * kRows, kKeys = 64;
constexpr int kScores = kKeys / 8;  // mma results side by side
constexpr int kVStride = kKeys + 8;
template <int kD>
constexpr int kStride = kD + 8;  // rows of pairs start 4 banks apart (modulo 32): lanes (g, t) meet 32 different ones

__device__ inline uint32_t pair(const T* p) { return *reinterpret_cast<const uint32_t*>(p); }
__device__ inline uint32_t pair(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}

// Over the 4 lanes that share a row.
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

// 64 rows of a head from `first`, as they lie or transposed; 0 beyond T and D.
template <int kD, bool kTransposed>
__device__ void load_tile(T* tile, const T* head, int64_t stride, int first, const AttentionSizes& s) {
  static_assert(kQueries == kKeys);
  constexpr int kGroups = kD / kGroup<T>;
  for (int i = static_cast<int>(threadIdx.x); i < kKeys * kGroups; i += kThreads) {
    const int row = i / kGroups, column = i % kGroups * kGroup<T>;
    const T* from = head + (first + row) * stride + column;
    const int elements = first + row < s.T ? s.D - column : 0;
    const Group<T> group = s.vectors ? load_group<true>(from, elements) : load_group<false>(from, elements);
    if constexpr (kTransposed) {
#pragma unroll
      for (int e = 0; e < kGroup<T>; ++e) tile[(column + e) * kVStride + row] = from_float<T>(group.v[e]);
    } else {
      store_group<true>(tile + row * kStride<kD> + column, group, kGroup<T>);
    }
  }
}

template <int kD>
__global__ void __launch_bounds__(kThreads, 2)
    tensor_core_kernel(T* o, float* lse, const T* q, const T* k, const T* v, AttentionSizes s) {
  constexpr int kSteps = kD / 16, kColumns = kD / 8;      // mma along D for scores; mma results side by side of o
  __shared__ SharedArray<T, kKeys * kStride<kD>> k_tile;  // and, before the first keys, the queries
  __shared__ SharedArray<T, kD * kVStride> v_tile;        // (kD, kKeys)

  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int g = lane / 4, t = lane % 4;
  const int h = static_cast<int>(blockIdx.y) % s.H, b = static_cast<int>(blockIdx.y) / s.H,
            kv_head = h / (s.H / s.H_kv);
  const int i0 = static_cast<int>(blockIdx.x) * kQueries;
  const int my_row = i0 + warp * kRows + g;  // and my_row + 8

  load_tile<kD, false>(k_tile.data(), q + s.at(s.q_stride, b, 0, h), s.q_stride, i0, s);
  __syncthreads();
  uint32_t queries[kSteps][4];
  const T* rows = k_tile.data() + (warp * kRows + g) * kStride<kD> + 2 * t;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    queries[step][0] = pair(rows + 16 * step);
    queries[step][1] = pair(rows + 16 * step + 8 * kStride<kD>);
    queries[step][2] = pair(rows + 16 * step + 8);
    queries[step][3] = pair(rows + 16 * step + 8 + 8 * kStride<kD>);
  }

  float sums[kColumns][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {};  // of rows g and g + 8; l: this lane's keys
  for (int j0 = 0; j0 < min(s.T, i0 + kQueries); j0 += kKeys) {
    __syncthreads();
    load_tile<kD, false>(k_tile.data(), k + s.at(s.k_stride, b, 0, kv_head), s.k_stride, j0, s);
    load_tile<kD, true>(v_tile.data(), v + s.at(s.v_stride, b, 0, kv_head), s.v_stride, j0, s);
    __syncthreads();

    float scores[kScores][4] = {};
    const T* keys = k_tile.data() + g * kStride<kD> + 2 * t;
#pragma unroll
    for (int j = 0; j < kScores; ++j)
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const T* at = keys + 8 * j * kStride<kD> + 16 * step;
        mma_m16n8k16(scores[j], queries[step], {pair(at), pair(at + 8)}, scores[j]);
      }

    float most[2] = {m[0], m[1]};
#pragma unroll
    for (int j = 0; j < kScores; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = my_row + e / 2 * 8, key = j0 + 8 * j + 2 * t + e % 2;
        scores[j][e] = key <= row ? scores[j][e] * s.scale : -INFINITY;
        most[e / 2] = fmaxf(most[e / 2], scores[j][e]);
      }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = quad_max(most[half]);
      const float rescale = __expf(m[half] - most[half]);
      m[half] = most[half];
      l[half] *= rescale;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        sums[c][2 * half] *= rescale;
        sums[c][2 * half + 1] *= rescale;
      }
    }
#pragma unroll
    for (int j = 0; j < kScores; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float p = __expf(scores[j][e] - m[e / 2]);
        l[e / 2] += p;
        if (s.masked) p *= s.keep(b, h, my_row + e / 2 * 8, j0 + 8 * j + 2 * t + e % 2);
        scores[j][e] = p;
      }

    const T* values = v_tile.data() + g * kVStride + 2 * t;
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const float(&low)[4] = scores[2 * step], (&high)[4] = scores[2 * step + 1];
      const uint32_t p[4] = {pair(low[0], low[1]), pair(low[2], low[3]), pair(high[0], high[1]),
                             pair(high[2], high[3])};
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const T* at = values + 8 * c * kVStride + 16 * step;
        mma_m16n8k16(sums[c], p, {pair(at), pair(at + 8)}, sums[c]);
      }
    }
  }

  const float row_sums[2] = {quad_sum(l[0]), quad_sum(l[1])};  // by all lanes, also those of rows beyond T
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = my_row + 8 * half;
    const float sum = row_sums[half];
    if (i >= s.T) continue;
    T* row = o + s.at(s.o_stride, b, i, h);
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int d = 8 * c + 2 * t + e;
        if (d < s.D) row[d] = from_float<T>(sums[c][2 * half + e] / sum);
      }
    if (t == 0) lse[(static_cast<int64_t>(b) * s.H + h) * s.T + i] = m[half] + logf(sum);
  }
}

}  // namespace

void attention_tensor_core(cudaStream_t stream, Allocator&, View o, View lse, ConstView q, ConstView k, ConstView v,
                           const AttentionShape& shape) {
  check_attention("attention_tensor_core", shape);
  const auto a = attention_arrays<T, View>("attention_tensor_core", o, lse, q, k, v, shape);
  const dim3 grid(exact_blocks(divide_up(shape.T, kQueries)), exact_blocks(shape.B * shape.H, 65535));
  dispatch_head(shape.D, [&](auto bound) {
    launch(stream, grid, kThreads, 0, tensor_core_kernel<bound()>, a.o, a.lse, a.q, a.k, a.v,
           attention_sizes(a, shape));
  });
}

}  // namespace trencadis
