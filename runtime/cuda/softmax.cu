// Softmax, and its logarithm, along one axis of x (outer,n,inner), and their backward passes. runtime/cpu/softmax.cpp is
// the readable reference.
//
// A row is a matter of kThreads threads: along the last axis of 32 lanes, which fold; along any other of one, whose
// neighbours have the neighbouring rows. It is read two or three times; rows are short enough for the cache, and what is
// as long as a vocabulary goes through cross_entropy.cu.
#include "runtime/cuda/argument.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/loops.cuh"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

constexpr int kBlock = 256;

template <int kThreads>
__device__ inline float row_sum(float value) {
  if constexpr (kThreads == kWarp) value = warp_sum(value);
  return value;
}
template <int kThreads>
__device__ inline float row_max(float value) {
  if constexpr (kThreads == kWarp) value = warp_max(value);
  return value;
}

// body(place of the row's first element, this thread's first step) for the rows of this thread.
template <int kThreads, typename Body>
__device__ inline void for_rows(const Axis& axis, Body body) {
  const int64_t rows = axis.outer * axis.inner, lane = grid_thread() % kThreads;
  for (int64_t row = grid_thread() / kThreads; row < rows; row += grid_threads() / kThreads) {
    const int64_t outer = quotient(row, axis.inner);
    body(outer * axis.n * axis.inner + row - outer * axis.inner, lane);
  }
}

template <int kThreads, typename T>
__global__ void __launch_bounds__(kBlock) softmax_kernel(T* y, const T* x, bool logarithm, Axis axis) {
  for_rows<kThreads>(axis, [&](int64_t first, int64_t lane) {
    float largest = -INFINITY;
    for (int64_t j = lane; j < axis.n; j += kThreads) largest = fmaxf(largest, to_float(x[first + j * axis.inner]));
    largest = row_max<kThreads>(largest);
    float sum = 0;
    for (int64_t j = lane; j < axis.n; j += kThreads) sum += expf(to_float(x[first + j * axis.inner]) - largest);
    sum = row_sum<kThreads>(sum);
    const float log_sum = logf(sum), scale = 1.0f / sum;  // a division in the loop would cost registers
    for (int64_t j = lane; j < axis.n; j += kThreads) {
      const float shifted = to_float(x[first + j * axis.inner]) - largest;
      y[first + j * axis.inner] = from_float<T>(logarithm ? shifted - log_sum : expf(shifted) * scale);
    }
  });
}

// dx may be dy: the sum over a row is complete before the row is written.
template <int kThreads, typename T>
__global__ void __launch_bounds__(kBlock)
    softmax_backward_kernel(T* dx, const T* dy, const T* y, bool logarithm, Axis axis) {
  for_rows<kThreads>(axis, [&](int64_t first, int64_t lane) {
    float sum = 0;
    for (int64_t j = lane; j < axis.n; j += kThreads) {
      const int64_t i = first + j * axis.inner;
      sum = logarithm ? sum + to_float(dy[i]) : fmaf(to_float(dy[i]), to_float(y[i]), sum);
    }
    sum = row_sum<kThreads>(sum);
    for (int64_t j = lane; j < axis.n; j += kThreads) {
      const int64_t i = first + j * axis.inner;
      const float d = to_float(dy[i]), p = to_float(y[i]);
      dx[i] = from_float<T>(logarithm ? fmaf(-expf(p), sum, d) : p * (d - sum));
    }
  });
}

// Calls f with the number of threads of a row, as a constant.
template <typename F>
void dispatch_threads(const Axis& axis, F&& f) {
  if (axis.inner == 1 && axis.n >= kWarp / 4)
    f(std::integral_constant<int, kWarp>{});
  else
    f(std::integral_constant<int, 1>{});
}

}  // namespace

void CudaKernels::softmax(View y, ConstView x, bool logarithm, const Axis& axis) {
  dispatch_float("softmax", x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>("softmax", "y", y, axis.count());
    const T* in = device_argument<T>("softmax", "x", x, axis.count());
    dispatch_threads(axis, [&](auto threads) {
      launch(stream_, stride_blocks(axis.rows() * threads(), kBlock), kBlock, 0, softmax_kernel<threads(), T>, out, in,
             logarithm, axis);
    });
  });
}

void CudaKernels::softmax_backward(View dx, ConstView dy, ConstView y, bool logarithm, const Axis& axis) {
  const char* kernel = "softmax_backward";
  dispatch_float(kernel, dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>(kernel, "dx", dx, axis.count());
    const T* d = device_argument<T>(kernel, "dy", dy, axis.count());
    const T* result = device_argument<T>(kernel, "y", y, axis.count());
    dispatch_threads(axis, [&](auto threads) {
      launch(stream_, stride_blocks(axis.rows() * threads(), kBlock), kBlock, 0, softmax_backward_kernel<threads(), T>,
             out, d, result, logarithm, axis);
    });
  });
}

}  // namespace trencadis
