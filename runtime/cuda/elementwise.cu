// Kernels on one element at a time: zero, copy, cast, fill, normal (add is in general.cu). All are bound by memory: a
// thread moves 16 bytes at a time, neighbours next to each other.
#include "runtime/cuda/argument.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/philox.cuh"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

constexpr int kBlock = 256;

// y_i = x_i in another type, kEight elements at a time: one group of the smaller type, two of the larger.
template <bool kAligned, typename To, typename From>
__global__ void __launch_bounds__(kBlock) cast_kernel(To* y, const From* x, int64_t n) {
  constexpr int kEight = 8;
  for (int64_t first = grid_thread() * kEight; first < n; first += grid_threads() * kEight) {
    const int64_t left = n - first;
    float values[kEight];
#pragma unroll
    for (int part = 0; part < kEight; part += kGroup<From>) {
      const Group<From> in = load_group<kAligned>(x + first + part, left - part);
#pragma unroll
      for (int i = 0; i < kGroup<From>; ++i) values[part + i] = in.v[i];
    }
#pragma unroll
    for (int part = 0; part < kEight; part += kGroup<To>) {
      Group<To> out;
#pragma unroll
      for (int i = 0; i < kGroup<To>; ++i) out.v[i] = values[part + i];
      store_group<kAligned>(y + first + part, out, left - part);
    }
  }
}

template <bool kAligned, typename T>
__global__ void __launch_bounds__(kBlock) fill_kernel(T* x, float value, int64_t n) {
  Group<T> group;
#pragma unroll
  for (int i = 0; i < kGroup<T>; ++i) group.v[i] = value;
  for (int64_t first = grid_thread() * kGroup<T>; first < n; first += grid_threads() * kGroup<T>)
    store_group<kAligned>(x + first, group, n - first);
}

// Two independent normal numbers from two words (Box, Muller 1958; runtime/cpu/elementwise.cpp). cospi takes the angle
// in half turns, so that no multiple of pi has to be subtracted: that would need memory, and a long way for large
// angles.
__device__ inline void box_muller(uint32_t word0, uint32_t word1, double* cosine, double* sine) {
  constexpr double kUnit = 1.0 / 4294967296.0;
  const double r = sqrt(-2.0 * log((word0 + 1.0) * kUnit)), half_turns = 2.0 * (word1 * kUnit);
  *cosine = r * cospi(half_turns);
  *sine = r * sinpi(half_turns);
}

// A thread makes the four numbers of one counter: global elements 4*quad to 4*quad + 3, of which x holds
// [first, first + n).
template <typename T>
__global__ void __launch_bounds__(kBlock) normal_kernel(T* x, double stddev, uint64_t key, int64_t first, int64_t n) {
  const int64_t last_quad = (first + n - 1) / 4;
  for (int64_t quad = first / 4 + grid_thread(); quad <= last_quad; quad += grid_threads()) {
    const uint64_t counter = static_cast<uint64_t>(quad);
    const uint4 words =
        philox_words(make_uint4(static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0), key);
    double values[4];
    box_muller(words.x, words.y, &values[0], &values[1]);
    box_muller(words.z, words.w, &values[2], &values[3]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t e = quad * 4 + i - first;
      if (e >= 0 && e < n) x[e] = from_float<T>(static_cast<float>(stddev * values[i]));
    }
  }
}

}  // namespace

void CudaKernels::zero(View x) {
  if (x.size > 0) CUDA_CHECK(cudaMemsetAsync(x.data, 0, static_cast<size_t>(x.bytes()), stream_));
}

void CudaKernels::copy(View y, ConstView x) {
  CHECK(y.dtype == x.dtype && y.size >= x.size, "copy: {} elements of {} do not fit {} of {}", x.size, name_of(x.dtype),
        y.size, name_of(y.dtype));
  if (x.size > 0)
    CUDA_CHECK(cudaMemcpyAsync(y.data, x.data, static_cast<size_t>(x.bytes()), cudaMemcpyDeviceToDevice, stream_));
}

void CudaKernels::cast(View y, ConstView x) {
  if (x.dtype == y.dtype) return copy(y, x);
  const int64_t n = x.size;
  dispatch_float("cast", x.dtype, [&](auto zero) {
    using From = decltype(zero);
    using To = std::conditional_t<std::is_same_v<From, float>, __nv_bfloat16, float>;
    To* to = device_argument<To>("cast", "y", y, n);
    const From* from = device_argument<From>("cast", "x", x, n);
    dispatch_bool(aligned16(to, from), [&](auto aligned) {
      launch(stream_, stride_blocks(divide_up(n, 8), kBlock), kBlock, 0, cast_kernel<aligned(), To, From>, to, from, n);
    });
  });
}

void CudaKernels::fill(View x, float value) {
  dispatch_float("fill", x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>("fill", "x", x, x.size);
    dispatch_bool(aligned16(out), [&](auto aligned) {
      launch(stream_, stride_blocks(divide_up(x.size, kGroup<T>), kBlock), kBlock, 0, fill_kernel<aligned(), T>, out,
             value, x.size);
    });
  });
}

void CudaKernels::normal(View x, float stddev, uint64_t key, int64_t first) {
  CHECK(first >= 0, "normal: first element {} is negative", first);
  if (x.size == 0) return;
  dispatch_float("normal", x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>("normal", "x", x, x.size);
    const int64_t quads = (first + x.size - 1) / 4 - first / 4 + 1;
    launch(stream_, stride_blocks(quads, kBlock), kBlock, 0, normal_kernel<T>, out, stddev, key, first, x.size);
  });
}

}  // namespace trencadis
