// Causal attention on the GPU, forward and backward: the kernels. attention.cu launches them.
//
// Forward (Dao et al., "FlashAttention", 2022): a block owns the queries of one tile; keys and values pass by, tile by
// tile. Each row keeps its maximum m and its sum l so far, and when m grows, what was summed is rescaled. No row of
// probabilities is ever complete, none reaches global memory.
// Backward makes the tiles again from q, k and lse. Two kernels, so that every sum has one owner and a fixed order: a
// block per tile of queries for dq, a block per tile of keys for dk and dv. A single kernel would save two of seven
// products and need atomic additions to dq, in whatever order blocks arrive.
//
// Invariants:
//   - Tiles of queries and keys start at multiples of kColumns, and key tile 0 comes first: every query sees key 0, so m
//     is finite whenever the scores are.
//   - A thread writes probabilities only to rows of its own warp, and only its warp reads them: __syncwarp suffices.
//   - Rows beyond T are zeros in shared memory; what is computed on them stays finite and is not stored.
#pragma once

#include "device/shared_array.h"
#include "runtime/cuda/attention_tiles.cuh"

namespace trencadis {

namespace attention_tiles {

constexpr float kNegativeInfinity = -__builtin_huge_valf();

// kR: rows of a thread. Two where four would fill the registers or the shared memory.
template <int kD>
constexpr int kForwardRows = 4;
template <int kD>
constexpr int kBackwardRows = kD > 64 ? 2 : 4;

template <int kR>
constexpr int kBlockRows = kR* kThreads / kAcross;

// Floats of dynamic shared memory.
template <int kR, int kD>
constexpr int64_t kForwardShared = (kBlockRows<kR> + 2 * kColumns) * kStride<kD> + kBlockRows<kR>* kScoreStride;
template <int kR, int kD>
constexpr int64_t kBackwardShared = (2 * kBlockRows<kR> + 2 * kColumns) * kStride<kD> + kBlockRows<kR>* kScoreStride +
                                    2 * kColumns;

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

// o (B,T,H,D), lse (B,H,T); grid: B * H * tiles of kBlockRows<kR> queries.
template <typename T, int kR, int kD>
__global__ void __launch_bounds__(attention_tiles::kThreads, 2)
    attention_forward_kernel(T* o, float* lse, const T* q, const T* k, const T* v, AttentionSizes s) {
  using namespace attention_tiles;
  constexpr int kRows = kBlockRows<kR>;
  DynamicSharedMemory shared;
  float* q_tile = shared.take<float>(kRows * kStride<kD>);
  float* k_tile = shared.take<float>(kColumns * kStride<kD>);
  float* v_tile = shared.take<float>(kColumns * kStride<kD>);
  float* p_tile = shared.take<float>(kRows * kScoreStride);

  const BlockPlace at(s.H, s.T, kRows, true);
  const int kv_head = at.h / (s.H / s.H_kv);
  const int my_row = at.first + kR * down();  // the first of kR
  load_rows<kRows, kD>(q_tile, q + s.at(s.q_stride, at.b, 0, at.h), s.q_stride, at.first, s);

  RowSums<kR, kD> sums;
  sums.clear();
  float m[kR], l[kR];  // l: of this thread's columns
#pragma unroll
  for (int r = 0; r < kR; ++r) {
    m[r] = kNegativeInfinity;
    l[r] = 0;
  }

  const int end = min(s.T, at.first + kRows);
  for (int j0 = 0; j0 < end; j0 += kColumns) {
    __syncthreads();  // nobody reads the former tiles any more
    load_rows<kColumns, kD>(k_tile, k + s.at(s.k_stride, at.b, 0, kv_head), s.k_stride, j0, s);
    load_rows<kColumns, kD>(v_tile, v + s.at(s.v_stride, at.b, 0, kv_head), s.v_stride, j0, s);
    __syncthreads();

    float scores[kR][kMine];
    dot_rows<kR, kD>(scores, q_tile, k_tile);
#pragma unroll
    for (int r = 0; r < kR; ++r) {
      const int i = my_row + r;
      float most = m[r];
#pragma unroll
      for (int c = 0; c < kMine; ++c) {
        const int j = j0 + across() + kAcross * c;
        scores[r][c] = j <= i ? scores[r][c] * s.scale : kNegativeInfinity;
        most = fmaxf(most, scores[r][c]);
      }
      most = row_max(most);
      const float rescale = __expf(m[r] - most);
      m[r] = most;
      l[r] *= rescale;
      sums.scale(r, rescale);
#pragma unroll
      for (int c = 0; c < kMine; ++c) {
        const int column = across() + kAcross * c;
        float p = __expf(scores[r][c] - most);
        l[r] += p;
        if (s.masked) p *= s.keep(at.b, at.h, i, j0 + column);
        p_tile[(kR * down() + r) * kScoreStride + column] = p;
      }
    }
    __syncwarp();
    sums.add_product(p_tile, v_tile);
  }

#pragma unroll
  for (int r = 0; r < kR; ++r) {
    const int i = my_row + r;
    const float sum = row_sum(l[r]);
    sums.scale(r, 1 / sum);
    sums.store(o + s.at(s.o_stride, at.b, 0, at.h), s.o_stride, r, i, s);
    if (across() == 0 && i < s.T) lse[(static_cast<int64_t>(at.b) * s.H + at.h) * s.T + i] = m[r] + logf(sum);
  }
}

// delta_i = sum over D of do * o = sum_j p_ij dp_ij, (B,H,T): known before any tile is made. A warp a row.
template <typename T>
__global__ void __launch_bounds__(attention_tiles::kThreads, 2)
    attention_delta_kernel(float* delta, const T* d_o, const T* o, int64_t rows, AttentionSizes s) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (attention_tiles::kThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= rows) return;  // all lanes of a warp
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t b = row / s.T / s.H, h = row / s.T % s.H, t = row % s.T;
  const int64_t from = s.at(s.o_stride, b, t, h);
  float sum = 0;
  for (int d = lane; d < s.D; d += kWarp) sum = fmaf(to_float(d_o[from + d]), to_float(o[from + d]), sum);
  sum = warp_sum(sum);
  if (lane == 0) delta[row] = sum;
}

// dq_i = sum_j ds_ij k_j; ds = scale * p * (dropout'(do . v) - delta). Grid as forward's.
template <typename T, int kR, int kD>
__global__ void __launch_bounds__(attention_tiles::kThreads, 2)
    attention_dq_kernel(T* dq, const T* d_o, const float* lse, const float* delta, const T* q, const T* k, const T* v,
                        AttentionSizes s) {
  using namespace attention_tiles;
  constexpr int kRows = kBlockRows<kR>;
  DynamicSharedMemory shared;
  float* q_tile = shared.take<float>(kRows * kStride<kD>);
  float* do_tile = shared.take<float>(kRows * kStride<kD>);
  float* k_tile = shared.take<float>(kColumns * kStride<kD>);
  float* v_tile = shared.take<float>(kColumns * kStride<kD>);
  float* ds_tile = shared.take<float>(kRows * kScoreStride);

  const BlockPlace at(s.H, s.T, kRows, true);
  const int kv_head = at.h / (s.H / s.H_kv);
  const int my_row = at.first + kR * down();
  load_rows<kRows, kD>(q_tile, q + s.at(s.q_stride, at.b, 0, at.h), s.q_stride, at.first, s);
  load_rows<kRows, kD>(do_tile, d_o + s.at(s.o_stride, at.b, 0, at.h), s.o_stride, at.first, s);

  RowSums<kR, kD> sums;
  sums.clear();
  float my_lse[kR], my_delta[kR];
#pragma unroll
  for (int r = 0; r < kR; ++r) {
    const int64_t row = (static_cast<int64_t>(at.b) * s.H + at.h) * s.T + my_row + r;
    my_lse[r] = my_row + r < s.T ? lse[row] : 0;
    my_delta[r] = my_row + r < s.T ? delta[row] : 0;
  }

  const int end = min(s.T, at.first + kRows);
  for (int j0 = 0; j0 < end; j0 += kColumns) {
    __syncthreads();
    load_rows<kColumns, kD>(k_tile, k + s.at(s.k_stride, at.b, 0, kv_head), s.k_stride, j0, s);
    load_rows<kColumns, kD>(v_tile, v + s.at(s.v_stride, at.b, 0, kv_head), s.v_stride, j0, s);
    __syncthreads();

    float scores[kR][kMine], dp[kR][kMine];
    dot_rows<kR, kD>(scores, q_tile, k_tile);
    dot_rows<kR, kD>(dp, do_tile, v_tile);
#pragma unroll
    for (int r = 0; r < kR; ++r) {
      const int i = my_row + r;
#pragma unroll
      for (int c = 0; c < kMine; ++c) {
        const int column = across() + kAcross * c, j = j0 + column;
        const float p = j <= i ? __expf(fmaf(scores[r][c], s.scale, -my_lse[r])) : 0;
        const float keep = s.masked ? s.keep(at.b, at.h, i, j) : 1;
        ds_tile[(kR * down() + r) * kScoreStride + column] = s.scale * p * fmaf(dp[r][c], keep, -my_delta[r]);
      }
    }
    __syncwarp();
    sums.add_product(ds_tile, k_tile);
  }
#pragma unroll
  for (int r = 0; r < kR; ++r) sums.store(dq + s.at(s.q_stride, at.b, 0, at.h), s.q_stride, r, my_row + r, s);
}

// dv_j = sum_i p_ij do_i; dk_j = sum_i ds_ij q_i: over the query heads that share the key/value head, in ascending order,
// and in each over tiles of queries from the first that sees a key of this block. Scores are made with keys as rows.
// Grid: B * H_kv * tiles of kBlockRows<kR> keys.
template <typename T, int kR, int kD>
__global__ void __launch_bounds__(attention_tiles::kThreads, 2)
    attention_dkv_kernel(T* dk, T* dv, const T* d_o, const float* lse, const float* delta, const T* q, const T* k,
                         const T* v, AttentionSizes s) {
  using namespace attention_tiles;
  constexpr int kRows = kBlockRows<kR>;
  DynamicSharedMemory shared;
  float* k_tile = shared.take<float>(kRows * kStride<kD>);
  float* v_tile = shared.take<float>(kRows * kStride<kD>);
  float* q_tile = shared.take<float>(kColumns * kStride<kD>);
  float* do_tile = shared.take<float>(kColumns * kStride<kD>);
  float* weights = shared.take<float>(kRows * kScoreStride);  // p, then ds
  float* lse_tile = shared.take<float>(kColumns);
  float* delta_tile = shared.take<float>(kColumns);

  const BlockPlace at(s.H_kv, s.T, kRows, false);
  const int my_row = at.first + kR * down(), group = s.H / s.H_kv;
  load_rows<kRows, kD>(k_tile, k + s.at(s.k_stride, at.b, 0, at.h), s.k_stride, at.first, s);
  load_rows<kRows, kD>(v_tile, v + s.at(s.v_stride, at.b, 0, at.h), s.v_stride, at.first, s);

  RowSums<kR, kD> dk_sums, dv_sums;
  dk_sums.clear();
  dv_sums.clear();
  for (int h = at.h * group; h < (at.h + 1) * group; ++h) {
    for (int i0 = at.first; i0 < s.T; i0 += kColumns) {
      __syncthreads();
      load_rows<kColumns, kD>(q_tile, q + s.at(s.q_stride, at.b, 0, h), s.q_stride, i0, s);
      load_rows<kColumns, kD>(do_tile, d_o + s.at(s.o_stride, at.b, 0, h), s.o_stride, i0, s);
      if (threadIdx.x < kColumns) {
        const int i = i0 + static_cast<int>(threadIdx.x);
        const int64_t row = (static_cast<int64_t>(at.b) * s.H + h) * s.T + i;
        lse_tile[threadIdx.x] = i < s.T ? lse[row] : 0;
        delta_tile[threadIdx.x] = i < s.T ? delta[row] : 0;
      }
      __syncthreads();

      float scores[kR][kMine], dp[kR][kMine];
      dot_rows<kR, kD>(scores, k_tile, q_tile);
      dot_rows<kR, kD>(dp, v_tile, do_tile);
#pragma unroll
      for (int r = 0; r < kR; ++r) {
        const int j = my_row + r;
#pragma unroll
        for (int c = 0; c < kMine; ++c) {
          const int column = across() + kAcross * c, i = i0 + column;
          const float p = j <= i ? __expf(fmaf(scores[r][c], s.scale, -lse_tile[column])) : 0;
          const float keep = s.masked ? s.keep(at.b, h, i, j) : 1;
          weights[(kR * down() + r) * kScoreStride + column] = p * keep;
          dp[r][c] = s.scale * p * fmaf(dp[r][c], keep, -delta_tile[column]);  // ds
        }
      }
      __syncwarp();
      dv_sums.add_product(weights, do_tile);
      __syncwarp();  // all of the warp have read p
#pragma unroll
      for (int r = 0; r < kR; ++r)
#pragma unroll
        for (int c = 0; c < kMine; ++c) weights[(kR * down() + r) * kScoreStride + across() + kAcross * c] = dp[r][c];
      __syncwarp();
      dk_sums.add_product(weights, q_tile);
    }
  }
#pragma unroll
  for (int r = 0; r < kR; ++r) {
    dk_sums.store(dk + s.at(s.k_stride, at.b, 0, at.h), s.k_stride, r, my_row + r, s);
    dv_sums.store(dv + s.at(s.v_stride, at.b, 0, at.h), s.v_stride, r, my_row + r, s);
  }
}

}  // namespace trencadis
