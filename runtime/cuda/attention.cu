// Causal attention: the backward pass, and the choice between these kernels and cuDNN's (cudnn/sdpa.h). Forward is
// ladder/attention_fast.cu; runtime/cpu/attention.cpp is the readable reference of both.
//
// Backward makes the tiles of probabilities again, from q, k and lse (Dao et al., "FlashAttention", 2022). Two kernels,
// so that every sum has one owner and a fixed order: a block per tile of queries for dq, a block per tile of keys for
// dk and dv. A single kernel would save two products of seven, and need atomic additions to dq in the order in which
// blocks happen to arrive.
//
// Invariants: as in forward, and the tiles of one kind start at multiples of kColumns, as those of the other do.
#include "device/shared_array.h"
#include "runtime/cuda/attention_arrays.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/cudnn/sdpa.h"
#include "runtime/cuda/ladder/attention.h"
#include "runtime/cuda/reduce.cuh"

namespace trencadis {

namespace {

using namespace attention_tiles;

// Rows of a thread. Two where four would fill the shared memory of smaller GPUs.
template <int kD>
constexpr int kBackwardRows = kD > 64 ? 2 : 4;
// Floats of dynamic shared memory.
template <int kR, int kD>
constexpr int kBackwardShared = (2 * kBlockRows<kR> + 2 * kColumns) * kStride<kD> + kBlockRows<kR>* kScoreStride +
                                2 * kColumns;

// delta_i = sum over D of do * o = sum_j p_ij dp_ij, (B,H,T): known before any tile is made. A warp a row.
template <typename T>
__global__ void __launch_bounds__(kThreads, 2)
    attention_delta_kernel(float* delta, const T* d_o, const T* o, int64_t rows, AttentionSizes s) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
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
__global__ void __launch_bounds__(kThreads, 2)
    attention_dq_kernel(T* dq, const T* d_o, const float* lse, const float* delta, const T* q, const T* k, const T* v,
                        AttentionSizes s) {
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

// dv_j = sum_i p_ij do_i; dk_j = sum_i ds_ij q_i: over the query heads that share the key/value head, ascending, and in
// each over tiles of queries from the first that sees a key of this block. Scores are made with keys as rows.
// Grid: B * H_kv * tiles of kBlockRows<kR> keys.
template <typename T, int kR, int kD>
__global__ void __launch_bounds__(kThreads, 2)
    attention_dkv_kernel(T* dk, T* dv, const T* d_o, const float* lse, const float* delta, const T* q, const T* k,
                         const T* v, AttentionSizes s) {
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

template <typename T, int kD>
void backward(const AttentionArrays<const T>& a, const AttentionGradients<T>& g, float* delta,
              const AttentionShape& shape, cudaStream_t stream) {
  constexpr int kR = kBackwardRows<kD>;
  constexpr size_t kShared = sizeof(float) * kBackwardShared<kR, kD>;
  AttentionSizes s = attention_sizes(a, shape);
  s.vectors = s.vectors && aligned16(g.d_o, g.dq, g.dk, g.dv);
  const int64_t rows = shape.B * shape.H * shape.T;
  const auto blocks = [&](int64_t heads) { return exact_blocks(shape.B * heads * divide_up(shape.T, kBlockRows<kR>)); };
  launch(stream, exact_blocks(divide_up(rows, kThreads / kWarp)), kThreads, 0, attention_delta_kernel<T>, delta, g.d_o,
         a.o, rows, s);
  launch(stream, blocks(shape.H), kThreads, kShared, attention_dq_kernel<T, kR, kD>, g.dq, g.d_o, a.lse, delta, a.q,
         a.k, a.v, s);
  launch(stream, blocks(shape.H_kv), kThreads, kShared, attention_dkv_kernel<T, kR, kD>, g.dk, g.dv, g.d_o, a.lse,
         delta, a.q, a.k, a.v, s);
}

}  // namespace

// Here, where CudnnAttention is a complete type.
CudaKernels::CudaKernels(cudaStream_t stream, CublasHandle& products, Allocator& scratch, AttentionChoice attention)
    : stream_(stream), products_(products), scratch_(scratch), attention_(attention) {}
CudaKernels::~CudaKernels() = default;

// Calls cuDNN if that is wanted; whether it took the call. What it refuses is left to the native kernels, unless the user
// insisted. Which kernels run depends on types, shape and alignment alone.
template <typename Call>
bool CudaKernels::by_cudnn(const char* kernel, DType dtype, Call&& call) {
  if (attention_ == AttentionChoice::native) return false;
  const bool insist = attention_ == AttentionChoice::cudnn;
  if (!insist && (dtype != DType::bf16 || !CudnnAttention::built())) return false;
  if (!cudnn_) cudnn_ = std::make_unique<CudnnAttention>(stream_, scratch_);
  const std::string refusal = call(*cudnn_);
  CHECK(refusal.empty() || !insist, "{}: cuDNN was asked for and does not take this call: {}; use attention auto",
        kernel, refusal);
  return refusal.empty();
}

void CudaKernels::attention(View o, View lse, ConstView q, ConstView k, ConstView v, const AttentionShape& s) {
  const char* kernel = "attention";
  check_attention(kernel, s);
  dispatch_float(kernel, o.dtype, [&](auto zero) {  // checks the views, whoever runs
    attention_arrays<decltype(zero), View>(kernel, o, lse, q, k, v, s);
  });
  if (by_cudnn(kernel, o.dtype, [&](CudnnAttention& cudnn) { return cudnn.forward(o, lse, q, k, v, s); })) return;
  attention_fast(stream_, scratch_, o, lse, q, k, v, s);
}

void CudaKernels::attention_backward(View dq, View dk, View dv, ConstView d_o, ConstView o, ConstView lse, ConstView q,
                                     ConstView k, ConstView v, const AttentionShape& s) {
  const char* kernel = "attention_backward";
  check_attention(kernel, s);
  dispatch_float(kernel, dq.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto arrays = attention_arrays<const T, ConstView>(kernel, o, lse, q, k, v, s);
    AttentionGradients<T> gradients;
    gradients.dq = head_array<T>(kernel, "dq", dq, s, s.H, s.q_stride);
    gradients.dk = head_array<T>(kernel, "dk", dk, s, s.H_kv, s.k_stride);
    gradients.dv = head_array<T>(kernel, "dv", dv, s, s.H_kv, s.v_stride);
    gradients.d_o = head_array<T>(kernel, "d_o", d_o, s, s.H, s.o_stride);
    if (by_cudnn(kernel, dq.dtype,
                 [&](CudnnAttention& cudnn) { return cudnn.backward(dq, dk, dv, d_o, o, lse, q, k, v, s); }))
      return;
    if (s.B * s.T == 0) return;
    Scratch<float> delta(scratch_, s.B * s.H * s.T);
    dispatch_head(s.D, [&](auto bound) { backward<T, bound()>(arrays, gradients, delta.data(), s, stream_); });
  });
}

}  // namespace trencadis
