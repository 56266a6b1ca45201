// Softmax and cross entropy of rows of logits (N,V); runtime/cpu/cross_entropy.cpp defines what is counted how.
//
// V reaches 50257 and a row 200 KB, more than a block's share of any cache. So forward reads each row once: maximum and
// sum of exponentials grow together (`OnlineSum`), and the sum is rescaled when the maximum moves. One block a row.
//
// 50257 is odd: most rows do not start at a multiple of 16 bytes, but groups of the whole array do. A row is therefore
// cut along the groups of the array; its first and its last one belong to it in part. The cut depends on N and V alone.
//
// Targets are on the device, where nothing can be thrown: a target of V or more makes its row's loss NaN, which the
// totals count as not finite, and its row of the gradient NaN.
#include <cmath>

#include "runtime/cuda/argument.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

constexpr int kBlock = 256;
constexpr float kNone = -INFINITY;  // the maximum of nothing
using Word = unsigned long long;

// sum = sum of exp(x - largest) over the x seen so far. Of nothing, or of -inf alone, the sum is 0.
struct OnlineSum {
  float largest, sum;
};

// What exponents are measured from: the largest value; but nothing can be subtracted from -inf, and from any other
// number exp(-inf - it) is the right 0.
__device__ inline float shift_of(float largest) { return largest == kNone ? 0.0f : largest; }

// The sum over more elements. Their maximum comes first, so that the old sum is rescaled once and not for each of them.
template <typename T>
__device__ inline OnlineSum include(OnlineSum online, const Group<T>& x) {
  float largest = online.largest;
#pragma unroll
  for (int k = 0; k < kGroup<T>; ++k) largest = fmaxf(largest, x.v[k]);  // ignores NaN; exp(NaN) below does not
  const float shift = shift_of(largest);
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kGroup<T>; ++k) sum += expf(x.v[k] - shift);
  return {largest, fmaf(online.sum, expf(online.largest - shift), sum)};
}

// The sum over the elements of both; the same bits for (a, b) and (b, a), as warp_fold wants.
__device__ inline OnlineSum merge(OnlineSum a, OnlineSum b) {
  const float largest = fmaxf(a.largest, b.largest), shift = shift_of(largest);
  return {largest, __fmul_rn(a.sum, expf(a.largest - shift)) + __fmul_rn(b.sum, expf(b.largest - shift))};
}

__device__ inline OnlineSum warp_merge(OnlineSum value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = merge(value,
                  {__shfl_xor_sync(kAllLanes, value.largest, offset), __shfl_xor_sync(kAllLanes, value.sum, offset)});
  }
  return value;
}

// body(group's first element in the array, elements of the row in it from, to) for this thread's groups of row i.
template <typename T, typename Body>
__device__ inline void for_row_groups(int64_t i, int64_t V, Body body) {
  const int64_t begin = i * V, end = begin + V;
  for (int64_t first = (begin / kGroup<T> + threadIdx.x) * kGroup<T>; first < end; first += kBlock * kGroup<T>)
    body(first, begin - first, end - first);
}

// lse (N); row_loss (N) = lse - logit of the target, in double; not written for rows that are ignored.
template <bool kAligned, typename T>
__global__ void __launch_bounds__(kBlock)
    cross_entropy_kernel(float* lse, double* row_loss, const T* logits, const int32_t* targets, int64_t V) {
  const int64_t i = blockIdx.x;
  OnlineSum online = {kNone, 0};
  for_row_groups<T>(i, V, [&](int64_t first, int64_t from, int64_t to) {
    online = include(online, load_group<kAligned>(logits + first, to, kNone, from));
  });
  online = block_fold<kBlock>(online, warp_merge, merge);
  if (threadIdx.x == 0) {
    const double row_lse = static_cast<double>(online.largest) + log(static_cast<double>(online.sum));
    lse[i] = static_cast<float>(row_lse);
    const int32_t target = targets[i];
    if (target >= 0)
      row_loss[i] = target < V ? row_lse - static_cast<double>(to_float(logits[i * V + target])) : double{NAN};
  }
}

// One block adds up all rows, in integers. What is counted, and in which unit: LossWord in runtime/kernels.h.
__global__ void __launch_bounds__(kBlock)
    loss_totals_kernel(float* loss, Word* totals, const double* row_loss, const int32_t* targets, int64_t N) {
  constexpr double kLargestLoss = 1 << 20;  // nats; the CPU's bound, so that a step's sum fits 63 bits
  long long tokens = 0, fixed_point = 0, not_finite = 0, nans = 0;
  for (int64_t i = threadIdx.x; i < N; i += kBlock) {
    if (targets[i] < 0) continue;
    const double l = row_loss[i];
    ++tokens;
    if (fabs(l) <= kLargestLoss) {
      fixed_point += llrint(l / kLossUnit);
    } else {
      ++not_finite;
      nans += l != l;
    }
  }
  tokens = block_sum<kBlock>(tokens);
  fixed_point = block_sum<kBlock>(fixed_point);
  not_finite = block_sum<kBlock>(not_finite);
  nans = block_sum<kBlock>(nans);
  if (threadIdx.x != 0) return;
  totals[kLossTokens] += static_cast<Word>(tokens);
  totals[kLossFixedPoint] += static_cast<Word>(fixed_point);
  totals[kLossNonFinite] += static_cast<Word>(not_finite);
  *loss = nans ? NAN : not_finite ? INFINITY : static_cast<float>(static_cast<double>(fixed_point) * kLossUnit);
}

// In place, one block a row: each thread reads what it writes, and the target's own thread subtracts the 1.
template <bool kAligned, typename T>
__global__ void __launch_bounds__(kBlock)
    cross_entropy_backward_kernel(T* logits, const float* lse, const int32_t* targets, const float* dloss, int64_t V) {
  const int64_t i = blockIdx.x;
  const int32_t target = targets[i];
  const bool ignored = target < 0;
  const float scale = target < V ? *dloss : NAN, shift = lse[i];
  for_row_groups<T>(i, V, [&](int64_t first, int64_t from, int64_t to) {
    Group<T> group = {};
    if (!ignored) {
      group = load_group<kAligned>(logits + first, to, 0.0f, from);
#pragma unroll
      for (int k = 0; k < kGroup<T>; ++k) {
        const float p = expf(group.v[k] - shift);
        group.v[k] = (k - from == target ? p - 1.0f : p) * scale;
      }
    }
    store_group<kAligned>(logits + first, group, to, from);
  });
}

}  // namespace

void CudaKernels::softmax_cross_entropy(View loss, View lse, View totals, ConstView logits, ConstView targets,
                                        int64_t N, int64_t V) {
  const char* kernel = "softmax_cross_entropy";
  CHECK(N >= 0 && V > 0, "{}: {} rows of {} logits", kernel, N, V);
  float* loss_out = device_argument<float>(kernel, "loss", loss, 1);
  float* lse_out = device_argument<float>(kernel, "lse", lse, N);
  auto* total = reinterpret_cast<Word*>(device_argument<int64_t>(kernel, "totals", totals, kLossWords));
  const int32_t* target = device_argument<int32_t>(kernel, "targets", targets, N);
  const Scratch<double> row_loss(scratch_, N);
  dispatch_float(kernel, logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = device_argument<T>(kernel, "logits", logits, N * V);
    dispatch_bool(aligned16(x), [&](auto aligned) {
      launch(stream_, exact_blocks(N), kBlock, 0, cross_entropy_kernel<aligned(), T>, lse_out, row_loss.data(), x,
             target, V);
    });
  });
  launch(stream_, 1, kBlock, 0, loss_totals_kernel, loss_out, total, row_loss.data(), target, N);
}

void CudaKernels::softmax_cross_entropy_backward(View logits, ConstView lse, ConstView targets, ConstView dloss,
                                                 int64_t N, int64_t V) {
  const char* kernel = "softmax_cross_entropy_backward";
  CHECK(N >= 0 && V > 0, "{}: {} rows of {} logits", kernel, N, V);
  const float* row_lse = device_argument<float>(kernel, "lse", lse, N);
  const int32_t* target = device_argument<int32_t>(kernel, "targets", targets, N);
  const float* scale = device_argument<float>(kernel, "dloss", dloss, 1);
  dispatch_float(kernel, logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* x = device_argument<T>(kernel, "logits", logits, N * V);
    dispatch_bool(aligned16(x), [&](auto aligned) {
      launch(stream_, exact_blocks(N), kBlock, 0, cross_entropy_backward_kernel<aligned(), T>, x, row_lse, target,
             scale, V);
    });
  });
}

}  // namespace trencadis
