// The pieces of a gradient norm that is the same to the bit for every way of cutting the data; why and how:
// runtime/cpu/norm.cpp. Both are reductions without an order, a maximum and a sum of integers, so here, and only for
// such, atomics are harmless: blocks add their results as they arrive.
#include "runtime/cuda/argument.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

constexpr int kBlock = 256;
using Word = unsigned long long;  // what 64-bit atomics take; all words here are non-negative

template <bool kAligned, typename T>
__global__ void __launch_bounds__(kBlock) max_abs_kernel(Word* out, const T* x, int64_t n) {
  unsigned largest = 0;
  for (int64_t first = grid_thread() * kGroup<T>; first < n; first += grid_threads() * kGroup<T>) {
    const Group<T> group = load_group<kAligned>(x + first, n - first);
#pragma unroll
    for (int i = 0; i < kGroup<T>; ++i) {
      const unsigned bits = __float_as_uint(group.v[i]) & 0x7fffffffu;  // |x|
      largest = bits > largest ? bits : largest;
    }
  }
  largest = block_max<kBlock>(largest);
  if (threadIdx.x == 0) atomicMax(out, static_cast<Word>(largest));
}

template <bool kAligned, typename T>
__global__ void __launch_bounds__(kBlock) sum_squares_kernel(Word* out, const T* x, const Word* max_bits, int64_t n) {
  const Word bits = *max_bits;
  if (bits == 0 || bits >= 0x7f800000u) return;  // 0, or inf or NaN: all threads leave
  const double inverse = 1.0 / __uint_as_float(static_cast<unsigned>(bits)), unit = 1 << 28;
  Word high = 0, low = 0;
  for (int64_t first = grid_thread() * kGroup<T>; first < n; first += grid_threads() * kGroup<T>) {
    const Group<T> group = load_group<kAligned>(x + first, n - first);  // beyond the end: zeros, which add nothing
#pragma unroll
    for (int i = 0; i < kGroup<T>; ++i) {
      // The CPU's operations, each rounded once. Products with `unit`, a power of two, are exact: it changes nothing
      // when a compiler fuses them with the subtraction.
      const double r = group.v[i] * inverse;
      const double square = r * r * unit;
      const int whole = static_cast<int>(square);
      high += static_cast<Word>(whole);
      low += static_cast<Word>(static_cast<int>((square - whole) * unit));
    }
  }
  high = block_sum<kBlock>(high);
  low = block_sum<kBlock>(low);
  if (threadIdx.x == 0) {
    atomicAdd(out, high);
    atomicAdd(out + 1, low);
  }
}

// A grid that reads 16 groups a thread: few blocks, because each ends with an atomic on the same address.
unsigned reduction_blocks(int64_t groups) { return stride_blocks(divide_up(groups, 16), kBlock); }

}  // namespace

void CudaKernels::max_abs(View out, ConstView x) {
  auto* result = reinterpret_cast<Word*>(device_argument<int64_t>("max_abs", "out", out, 1));
  dispatch_float("max_abs", x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* in = device_argument<T>("max_abs", "x", x, x.size);
    dispatch_bool(aligned16(in), [&](auto aligned) {
      launch(stream_, reduction_blocks(divide_up(x.size, kGroup<T>)), kBlock, 0, max_abs_kernel<aligned(), T>, result,
             in, x.size);
    });
  });
}

void CudaKernels::sum_squares(View out, ConstView x, ConstView max_bits) {
  auto* result = reinterpret_cast<Word*>(device_argument<int64_t>("sum_squares", "out", out, 2));
  auto* largest = reinterpret_cast<const Word*>(device_argument<int64_t>("sum_squares", "max_bits", max_bits, 1));
  dispatch_float("sum_squares", x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* in = device_argument<T>("sum_squares", "x", x, x.size);
    dispatch_bool(aligned16(in), [&](auto aligned) {
      launch(stream_, reduction_blocks(divide_up(x.size, kGroup<T>)), kBlock, 0, sum_squares_kernel<aligned(), T>,
             result, in, largest, x.size);
    });
  });
}

}  // namespace trencadis
