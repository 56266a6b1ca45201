// Rung 3 of attention: what the backend runs (f32 and bf16).
//
// A block owns 64 queries; tiles of 32 keys and values pass by in shared memory (../attention_tiles.cuh). What is new
// against rung 2:
//   registers       A thread makes 4 x 4 scores from 4 + 4 reads of 16 bytes each: 8 reads for 64 multiplications. It
//                   sums 4 rows of o, and reads a value once for the 4 of them.
//   wide loads      16 bytes from global memory where every row of every head starts at a multiple of 16 bytes.
//   fewer meetings  A warp looks for the maxima of 4 rows at a time. Each thread sums l over its own columns, and the 8
//                   threads of a row add theirs up once, at the end.
//
// Invariants:
//   - Key tile 0 comes first and every query sees key 0, so m is finite whenever the scores are.
//   - A thread writes probabilities only to rows of its own warp, and only its warp reads them.
//   - Rows beyond T are zeros in shared memory; what is computed on them stays finite and is not stored.
#include "device/shared_array.h"
#include "runtime/cuda/attention_arrays.h"
#include "runtime/cuda/ladder/attention.h"

namespace trencadis {

namespace {

using namespace attention_tiles;

constexpr int kR = 4;  // rows of a thread
constexpr int kRows = kBlockRows<kR>;
// Floats of dynamic shared memory.
template <int kD>
constexpr int kShared = (kRows + 2 * kColumns) * kStride<kD> + kRows* kScoreStride;

// o (B,T,H,D), lse (B,H,T); grid: B * H * tiles of kRows queries.
template <typename T, int kD>
__global__ void __launch_bounds__(kThreads, 2)
    fast_kernel(T* o, float* lse, const T* q, const T* k, const T* v, AttentionSizes s) {
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
    m[r] = -INFINITY;
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
        scores[r][c] = j <= i ? scores[r][c] * s.scale : -INFINITY;
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

}  // namespace

void attention_fast(cudaStream_t stream, Allocator&, View o, View lse, ConstView q, ConstView k, ConstView v,
                    const AttentionShape& shape) {
  check_attention("attention", shape);
  dispatch_float("attention", o.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto a = attention_arrays<T, View>("attention", o, lse, q, k, v, shape);
    const AttentionSizes s = attention_sizes(a, shape);
    const unsigned blocks = exact_blocks(shape.B * shape.H * divide_up(shape.T, kRows));
    dispatch_head(shape.D, [&](auto bound) {
      launch(stream, blocks, kThreads, sizeof(float) * kShared<bound()>, fast_kernel<T, bound()>, a.o, a.lse, a.q, a.k,
             a.v, s);
    });
  });
}

}  // namespace trencadis
