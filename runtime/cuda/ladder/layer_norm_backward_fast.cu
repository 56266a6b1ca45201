// Layer norm backward, third rung: memory is read once, and the whole GPU reads.
//
// The kernel has to move dy, x and dx, (N,C) each, and the rung below moves dy and x twice. Here a block walks down a
// chunk of rows and works on one row at a time, all its threads together; a thread keeps its groups of the row in
// registers between the two passes that dx needs, and adds them to its columns' dgamma and dbeta, in registers too, for
// the whole chunk. The chunks' partial sums go to scratch memory and are added in order (column_sums.cuh). There are up
// to kMostChunks blocks, and a load moves 16 bytes where alignment allows.
//
// Rows that do not fit the registers (above 1024 groups: 4096 columns of f32, 8192 of bf16) go to the rung below.
#include "runtime/cuda/column_sums.cuh"
#include "runtime/cuda/ladder/layer_norm_backward_arrays.h"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

constexpr int64_t kLeastRows = 8, kMostChunks = 512;

struct Pair {
  float g, g_xh;
};

// Thread t has groups t, t + kBlock, ... of every row of the chunk, kGroups of them.
template <int kBlock, int kGroups, bool kAligned, typename T>
__global__ void __launch_bounds__(kBlock)
    fast_kernel(LayerNormBackwardArrays<T> a, float* dgamma_partials, float* dbeta_partials, int64_t rows) {
  constexpr int kWarps = kBlock / kWarp;
  // The warps' sums of two rows. While slow threads still read one row's, fast ones write the next row's into the other
  // half; they cannot be two rows ahead, because of the barrier in between. So one barrier a row is enough.
  __shared__ SharedArray<Pair, 2 * kWarps> parts;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t begin = blockIdx.x * rows, end = begin + rows < a.N ? begin + rows : a.N;

  Group<T> dgamma[kGroups] = {}, dbeta[kGroups] = {};
  for (int64_t n = begin; n < end; ++n) {
    const float mean = a.mean[n], rstd = a.rstd[n];
    const T *x_row = a.x + n * a.C, *dy_row = a.dy + n * a.C;
    Group<T> xh[kGroups] = {}, g[kGroups] = {};
    Pair sum = {0, 0};
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int64_t c = (static_cast<int64_t>(j) * kBlock + threadIdx.x) * kGroup<T>;
      if (c < a.C) {
        // Elements beyond C: dy is 0, and so is what it is multiplied with.
        xh[j] = load_group<kAligned>(x_row + c, a.C - c, mean);
        g[j] = load_group<kAligned>(dy_row + c, a.C - c);
        const Group<T> gamma = load_group<kAligned>(a.gamma + c, a.C - c);
#pragma unroll
        for (int i = 0; i < kGroup<T>; ++i) {
          const float d = g[j].v[i];
          xh[j].v[i] = (xh[j].v[i] - mean) * rstd;
          g[j].v[i] = gamma.v[i] * d;
          sum.g += g[j].v[i];
          sum.g_xh = fmaf(g[j].v[i], xh[j].v[i], sum.g_xh);
          dgamma[j].v[i] = fmaf(d, xh[j].v[i], dgamma[j].v[i]);
          dbeta[j].v[i] += d;
        }
      }
    }

    sum = {warp_sum(sum.g), warp_sum(sum.g_xh)};
    const int half = static_cast<int>(n % 2) * kWarps;
    if (lane == 0) parts[half + warp] = sum;
    __syncthreads();
    sum = {0, 0};
    for (int w = 0; w < kWarps; ++w) {
      sum.g += parts[half + w].g;
      sum.g_xh += parts[half + w].g_xh;
    }
    const float mean_g = sum.g / static_cast<float>(a.C), mean_g_xh = sum.g_xh / static_cast<float>(a.C);

#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int64_t c = (static_cast<int64_t>(j) * kBlock + threadIdx.x) * kGroup<T>;
      if (c < a.C) {
        Group<T> d = {};
        if (a.dresidual) d = load_group<kAligned>(a.dresidual + n * a.C + c, a.C - c);
#pragma unroll
        for (int i = 0; i < kGroup<T>; ++i) d.v[i] += rstd * fmaf(-xh[j].v[i], mean_g_xh, g[j].v[i] - mean_g);
        store_group<kAligned>(a.dx + n * a.C + c, d, a.C - c);
      }
    }
  }

#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    const int64_t c = (static_cast<int64_t>(j) * kBlock + threadIdx.x) * kGroup<T>;
#pragma unroll
    for (int i = 0; i < kGroup<T>; ++i)
      if (c + i < a.C) {
        if (dgamma_partials) dgamma_partials[blockIdx.x * a.C + c + i] = dgamma[j].v[i];
        if (dbeta_partials) dbeta_partials[blockIdx.x * a.C + c + i] = dbeta[j].v[i];
      }
  }
}

template <int kBlock, int kGroups, typename T>
void run(cudaStream_t stream, Allocator& scratch, const LayerNormBackwardArrays<T>& a) {
  const RowChunks chunks(a.N, kLeastRows, kMostChunks);
  const Scratch<float> dgammas(scratch, a.dgamma ? chunks.count * a.C : 0);
  const Scratch<float> dbetas(scratch, a.dbeta ? chunks.count * a.C : 0);
  const bool all_aligned = aligned16(a.dx, a.dy, a.x, a.gamma, a.dresidual) && aligned_rows<T>(a.N, a.C);
  dispatch_bool(all_aligned, [&](auto aligned) {
    launch(stream, exact_blocks(chunks.count), kBlock, 0, fast_kernel<kBlock, kGroups, aligned(), T>, a, dgammas.data(),
           dbetas.data(), chunks.rows);
  });
  if (a.dgamma) add_partials(stream, a.dgamma, dgammas.data(), chunks.count, a.C, a.accumulate);
  if (a.dbeta) add_partials(stream, a.dbeta, dbetas.data(), chunks.count, a.C, a.accumulate);
}

}  // namespace

void layer_norm_backward_fast(cudaStream_t stream, Allocator& scratch, const LayerNormBackward& call) {
  dispatch_float("layer_norm_backward", call.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const LayerNormBackwardArrays<T> arrays(call);
    const int64_t groups = divide_up(call.C, kGroup<T>);
    if (groups <= 128) return run<128, 1>(stream, scratch, arrays);
    if (groups <= 256) return run<256, 1>(stream, scratch, arrays);
    if (groups <= 512) return run<256, 2>(stream, scratch, arrays);
    if (groups <= 1024) return run<256, 4>(stream, scratch, arrays);
    layer_norm_backward_tiled(stream, scratch, call);
  });
}

}  // namespace trencadis
