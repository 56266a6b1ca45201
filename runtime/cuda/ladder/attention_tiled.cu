// Rung 2 of attention: flash (Dao et al., 2022) in its plainest form.
//
// A block owns 32 queries and 4 warps 8 of them each. Tiles of 32 keys and values pass by in shared memory. For one
// query, each lane makes the score of one key; the warp finds maximum and sum; then each lane turns to columns of o.
// A row keeps its maximum m and its sum l so far. When a new tile has a larger maximum m', what was summed with
// exp(s - m) becomes right by the factor exp(m - m'). So scores never leave the block.
//
// What still holds it back: two reads of shared memory for each multiplication, as in rung 2 of matrix products.
#include "device/shared_array.h"
#include "runtime/cuda/attention_arrays.h"
#include "runtime/cuda/ladder/attention.h"
#include "runtime/cuda/reduce.cuh"

namespace trencadis {

namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
constexpr int kQueries = 32, kKeys = kWarp;  // of a tile; a lane a key
constexpr int kRows = kQueries / kWarps;     // of a warp
template <int kD>
constexpr int kStride = kD + 1;  // odd: 32 lanes, each on its own key, meet 32 different banks
template <int kD>
constexpr int kShared = (kQueries + 2 * kKeys) * kStride<kD> + kWarps* kKeys;  // floats

// Rows [first, first + kQueries) of a head; 0 beyond T and D.
template <int kD, typename T>
__device__ void load_tile(float* tile, const T* head, int64_t stride, int first, const AttentionSizes& s) {
  static_assert(kQueries == kKeys);
  for (int i = static_cast<int>(threadIdx.x); i < kKeys * kD; i += kThreads) {
    const int row = i / kD, d = i % kD;
    tile[row * kStride<kD> + d] = first + row < s.T && d < s.D ? to_float(head[(first + row) * stride + d]) : 0;
  }
}

template <typename T, int kD>
__global__ void __launch_bounds__(kThreads)
    tiled_kernel(T* o, float* lse, const T* q, const T* k, const T* v, AttentionSizes s) {
  constexpr int kColumns = kD / kWarp;  // of o, a lane
  DynamicSharedMemory shared;
  float* q_tile = shared.take<float>(kQueries * kStride<kD>);
  float* k_tile = shared.take<float>(kKeys * kStride<kD>);
  float* v_tile = shared.take<float>(kKeys * kStride<kD>);
  float* p_rows = shared.take<float>(kWarps * kKeys);

  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int h = static_cast<int>(blockIdx.y) % s.H, b = static_cast<int>(blockIdx.y) / s.H,
            kv_head = h / (s.H / s.H_kv);
  const int i0 = static_cast<int>(blockIdx.x) * kQueries;
  load_tile<kD>(q_tile, q + s.at(s.q_stride, b, 0, h), s.q_stride, i0, s);

  float sums[kRows][kColumns] = {}, m[kRows], l[kRows] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) m[r] = -INFINITY;

  for (int j0 = 0; j0 < min(s.T, i0 + kQueries); j0 += kKeys) {
    __syncthreads();  // nobody reads the former tiles any more
    load_tile<kD>(k_tile, k + s.at(s.k_stride, b, 0, kv_head), s.k_stride, j0, s);
    load_tile<kD>(v_tile, v + s.at(s.v_stride, b, 0, kv_head), s.v_stride, j0, s);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = warp * kRows + r, i = i0 + row, j = j0 + lane;
      float score = 0;
      for (int d = 0; d < kD; ++d) score = fmaf(q_tile[row * kStride<kD> + d], k_tile[lane * kStride<kD> + d], score);
      score = j <= i ? score * s.scale : -INFINITY;
      const float most = fmaxf(m[r], warp_max(score)), rescale = __expf(m[r] - most), p = __expf(score - most);
      l[r] = l[r] * rescale + warp_sum(p);
      m[r] = most;
      p_rows[warp * kKeys + lane] = s.masked ? p * s.keep(b, h, i, j) : p;
      __syncwarp();  // the warp's row is complete
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        float sum = sums[r][c] * rescale;
        for (int key = 0; key < kKeys; ++key)
          sum = fmaf(p_rows[warp * kKeys + key], v_tile[key * kStride<kD> + c * kWarp + lane], sum);
        sums[r][c] = sum;
      }
      __syncwarp();  // nobody reads it any more
    }
  }

#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int i = i0 + warp * kRows + r;
    if (i >= s.T) continue;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int d = c * kWarp + lane;
      if (d < s.D) o[s.at(s.o_stride, b, i, h) + d] = from_float<T>(sums[r][c] / l[r]);
    }
    if (lane == 0) lse[(static_cast<int64_t>(b) * s.H + h) * s.T + i] = m[r] + logf(l[r]);
  }
}

}  // namespace

void attention_tiled(cudaStream_t stream, Allocator&, View o, View lse, ConstView q, ConstView k, ConstView v,
                     const AttentionShape& shape) {
  check_attention("attention_tiled", shape);
  dispatch_float("attention_tiled", o.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto a = attention_arrays<T, View>("attention_tiled", o, lse, q, k, v, shape);
    const dim3 grid(exact_blocks(divide_up(shape.T, kQueries)), exact_blocks(shape.B * shape.H, 65535));
    dispatch_head(shape.D, [&](auto bound) {
      launch(stream, grid, kThreads, sizeof(float) * kShared<bound()>, tiled_kernel<T, bound()>, a.o, a.lse, a.q, a.k,
             a.v, attention_sizes(a, shape));
    });
  });
}

}  // namespace trencadis
