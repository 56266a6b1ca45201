// The general operations on one element at a time: add, functions of one argument and their derivatives, arithmetic with
// broadcasting, and copies from any steps to any other. runtime/cpu/general.cpp is the readable reference.
//
// Arrays that are walked in order, or are one number, are moved in groups of 16 bytes; a thread that has to find its
// places in a loop moves one element. The operation is a value: every thread of a launch takes the same branch.
#include "runtime/cuda/argument.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/gelu.cuh"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/loops.cuh"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

constexpr int kBlock = 256;

__device__ inline float sigmoid(float x) { return 1.0f / (expf(-x) + 1.0f); }

__device__ inline float apply(Unary op, float x) {
  switch (op) {
    case Unary::exp:
      return expf(x);
    case Unary::log:
      return logf(x);
    case Unary::sqrt:
      return sqrtf(x);
    case Unary::tanh:
      return tanhf(x);
    case Unary::sigmoid:
      return sigmoid(x);
    case Unary::relu:
      return x < 0.0f ? 0.0f : x;  // NaN stays
    case Unary::silu:
      return x / (expf(-x) + 1.0f);
    default:
      return gelu(x);
  }
}

// dy op'(x); s is what was saved, the result or the argument (derivative_reads_result).
__device__ inline float apply_backward(Unary op, float dy, float s) {
  switch (op) {
    case Unary::exp:
      return dy * s;
    case Unary::log:
      return dy / s;
    case Unary::sqrt:
      return dy / (s + s);
    case Unary::tanh:
      return dy * fmaf(-s, s, 1.0f);
    case Unary::sigmoid:
      return dy * (s * (1.0f - s));
    case Unary::relu:
      return s > 0.0f ? dy : 0.0f;
    case Unary::silu: {
      const float p = sigmoid(s);
      return dy * fmaf(s * p, 1.0f - p, p);
    }
    default:
      return dy * gelu_derivative(s);
  }
}

__device__ inline float apply(Binary op, float a, float b) {
  switch (op) {
    case Binary::add:
      return a + b;
    case Binary::sub:
      return a - b;
    case Binary::mul:
      return a * b;
    default:
      return a / b;
  }
}

// y may be x: each thread reads what it writes. The same for the kernels below.
template <bool kAligned, typename T>
__global__ void __launch_bounds__(kBlock) unary_kernel(T* y, const T* x, Unary op, int64_t n) {
  for (int64_t first = grid_thread() * kGroup<T>; first < n; first += grid_threads() * kGroup<T>) {
    Group<T> group = load_group<kAligned>(x + first, n - first);
#pragma unroll
    for (int i = 0; i < kGroup<T>; ++i) group.v[i] = apply(op, group.v[i]);
    store_group<kAligned>(y + first, group, n - first);
  }
}

template <bool kAligned, typename T>
__global__ void __launch_bounds__(kBlock)
    unary_backward_kernel(T* dx, const T* dy, const T* saved, Unary op, int64_t n) {
  for (int64_t first = grid_thread() * kGroup<T>; first < n; first += grid_threads() * kGroup<T>) {
    Group<T> d = load_group<kAligned>(dy + first, n - first);
    const Group<T> s = load_group<kAligned>(saved + first, n - first);
#pragma unroll
    for (int i = 0; i < kGroup<T>; ++i) d.v[i] = apply_backward(op, d.v[i], s.v[i]);
    store_group<kAligned>(dx + first, d, n - first);
  }
}

// x[first ...], or one number for all.
template <bool kAligned, typename T>
__device__ inline Group<T> load_operand(const T* x, int64_t step, int64_t first, int64_t left) {
  if (step) return load_group<kAligned>(x + first, left);
  Group<T> group;
#pragma unroll
  for (int i = 0; i < kGroup<T>; ++i) group.v[i] = to_float(x[0]);
  return group;
}

template <bool kAligned, typename T>
__global__ void __launch_bounds__(kBlock)
    binary_kernel(T* y, const T* a, const T* b, Binary op, int64_t a_step, int64_t b_step, int64_t n) {
  for (int64_t first = grid_thread() * kGroup<T>; first < n; first += grid_threads() * kGroup<T>) {
    Group<T> left = load_operand<kAligned>(a, a_step, first, n - first);
    const Group<T> right = load_operand<kAligned>(b, b_step, first, n - first);
#pragma unroll
    for (int i = 0; i < kGroup<T>; ++i) left.v[i] = apply(op, left.v[i], right.v[i]);
    store_group<kAligned>(y + first, left, n - first);
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    binary_loop_kernel(T* y, const T* a, const T* b, Binary op, Loop loop, int64_t n) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const Places<2> places = places_of(loop, i);
    y[i] = from_float<T>(apply(op, to_float(a[places.at[0]]), to_float(b[places.at[1]])));
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlock) copy_loop_kernel(T* y, const T* x, Loop loop, int64_t n) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const Places<2> places = places_of(loop, i);
    y[places.at[0]] = x[places.at[1]];
  }
}

// Arrays that are dense (step 1) or one number (step 0).
template <typename T>
void launch_binary(cudaStream_t stream, T* y, const T* a, const T* b, Binary op, int64_t a_step, int64_t b_step,
                   int64_t n) {
  dispatch_bool(aligned16(y, a_step ? a : nullptr, b_step ? b : nullptr), [&](auto aligned) {
    launch(stream, stride_blocks(divide_up(n, kGroup<T>), kBlock), kBlock, 0, binary_kernel<aligned(), T>, y, a, b, op,
           a_step, b_step, n);
  });
}

}  // namespace

void CudaKernels::add(View y, ConstView x) { add(y, y, x); }

void CudaKernels::add(View y, ConstView a, ConstView b) {
  const int64_t n = b.size;
  dispatch_float("add", b.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>("add", "y", y, n);
    const T* left = device_argument<T>("add", "a", a, n);
    const T* right = device_argument<T>("add", "b", b, n);
    launch_binary<T>(stream_, out, left, right, Binary::add, 1, 1, n);
  });
}

void CudaKernels::unary(View y, ConstView x, Unary op) {
  const int64_t n = x.size;
  dispatch_float("unary", x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>("unary", "y", y, n);
    const T* in = device_argument<T>("unary", "x", x, n);
    dispatch_bool(aligned16(out, in), [&](auto aligned) {
      launch(stream_, stride_blocks(divide_up(n, kGroup<T>), kBlock), kBlock, 0, unary_kernel<aligned(), T>, out, in,
             op, n);
    });
  });
}

void CudaKernels::unary_backward(View dx, ConstView dy, ConstView saved, Unary op) {
  const char* kernel = "unary_backward";
  const int64_t n = dy.size;
  dispatch_float(kernel, dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>(kernel, "dx", dx, n);
    const T* in = device_argument<T>(kernel, "dy", dy, n);
    const T* kept = device_argument<T>(kernel, "saved", saved, n);
    dispatch_bool(aligned16(out, in, kept), [&](auto aligned) {
      launch(stream_, stride_blocks(divide_up(n, kGroup<T>), kBlock), kBlock, 0, unary_backward_kernel<aligned(), T>,
             out, in, kept, op, n);
    });
  });
}

void CudaKernels::binary(View y, ConstView a, ConstView b, Binary op, const Loop& loop) {
  const int64_t n = loop.count();
  dispatch_float("binary", y.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>("binary", "y", y, n);
    const T* left = device_argument<T>("binary", "a", a, loop.span(0));
    const T* right = device_argument<T>("binary", "b", b, loop.span(1));
    const bool in_order = loop.rank == 0 || (loop.rank == 1 && loop.step[0][0] <= 1 && loop.step[1][0] <= 1);
    if (in_order)
      launch_binary<T>(stream_, out, left, right, op, loop.step[0][0], loop.step[1][0], n);
    else
      launch(stream_, stride_blocks(n, kBlock), kBlock, 0, binary_loop_kernel<T>, out, left, right, op, loop, n);
  });
}

void CudaKernels::copy_strided(View y, ConstView x, const Loop& loop) {
  const int64_t n = loop.count();
  dispatch_float("copy_strided", x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>("copy_strided", "y", y, loop.span(0));
    const T* in = device_argument<T>("copy_strided", "x", x, loop.span(1));
    launch(stream_, stride_blocks(n, kBlock), kBlock, 0, copy_loop_kernel<T>, out, in, loop, n);
  });
}

}  // namespace trencadis
