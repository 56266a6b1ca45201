#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "dist/nccl/kernels.h"
#include "runtime/cuda/launch.h"

namespace trencadis {

namespace {

constexpr int kThreads = 256;

// bf16 is CUDA's own class here, of the same two bytes.
template <typename T>
__device__ T sum(T a, T b) {
  return a + b;
}
template <>
__device__ __nv_bfloat16 sum(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __float2bfloat16(__bfloat162float(a) + __bfloat162float(b));
}

template <typename T>
__global__ void __launch_bounds__(kThreads) add_kernel(T* y, const T* x, int64_t n) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
    y[i] = sum(y[i], x[i]);
}

// IEEE floats are signs and magnitudes: read as two's complement, the order of the negative ones is turned around.
// The largest key stands for NaN.
template <typename Key>
__device__ Key turn(Key bits) {
  constexpr Key kMagnitude = static_cast<Key>(~(Key{1} << (8 * sizeof(Key) - 1)));
  return bits < 0 ? static_cast<Key>(bits ^ kMagnitude) : bits;
}

__device__ int32_t bits_of(float x) { return __float_as_int(x); }
__device__ int64_t bits_of(double x) { return __double_as_longlong(x); }
__device__ float value_of(int32_t bits) { return __int_as_float(bits); }
__device__ double value_of(int64_t bits) { return __longlong_as_double(bits); }
template <typename T>
__device__ T widened(T x) {
  return x;
}
__device__ float widened(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename Key, typename T>
__global__ void __launch_bounds__(kThreads) keys_kernel(Key* keys, const T* values, int64_t n) {
  constexpr Key kLargest = static_cast<Key>(~(Key{1} << (8 * sizeof(Key) - 1)));
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const auto x = widened(values[i]);
    keys[i] = x != x ? kLargest : turn(bits_of(x));
  }
}

template <typename T, typename Key>
__global__ void __launch_bounds__(kThreads) values_kernel(T* values, const Key* keys, int64_t n) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
    values[i] = static_cast<T>(value_of(turn(keys[i])));
}

unsigned blocks_for(int64_t n) { return static_cast<unsigned>(std::min<int64_t>(divide_up(n, kThreads), 4096)); }

template <typename T>
void add_as(View y, ConstView x, cudaStream_t stream) {
  launch(stream, blocks_for(y.size), kThreads, 0, add_kernel<T>, static_cast<T*>(y.data), static_cast<const T*>(x.data),
         y.size);
}

template <typename Key, typename T>
void keys_as(View keys, ConstView values, cudaStream_t stream) {
  launch(stream, blocks_for(keys.size), kThreads, 0, keys_kernel<Key, T>, static_cast<Key*>(keys.data),
         static_cast<const T*>(values.data), keys.size);
}

template <typename T, typename Key>
void values_as(View values, ConstView keys, cudaStream_t stream) {
  launch(stream, blocks_for(keys.size), kThreads, 0, values_kernel<T, Key>, static_cast<T*>(values.data),
         static_cast<const Key*>(keys.data), keys.size);
}

}  // namespace

void add_on_stream(View y, ConstView x, cudaStream_t stream) {
  CHECK(y.dtype == x.dtype && y.size == x.size, "a sum of {} {} and {} {}", y.size, name_of(y.dtype), x.size,
        name_of(x.dtype));
  switch (y.dtype) {
    case DType::f32:
      return add_as<float>(y, x, stream);
    case DType::bf16:
      return add_as<__nv_bfloat16>(y, x, stream);
    case DType::f64:
      return add_as<double>(y, x, stream);
    case DType::i64:
      return add_as<int64_t>(y, x, stream);
    default:
      CHECK(false, "a sum of {}", name_of(y.dtype));
  }
}

DType key_type(DType dtype) { return dtype == DType::f64 ? DType::i64 : DType::i32; }

void keys_of_values(View keys, ConstView values, cudaStream_t stream) {
  CHECK(keys.dtype == key_type(values.dtype), "{} keys of {}", name_of(keys.dtype), name_of(values.dtype));
  if (values.dtype == DType::f64) return keys_as<int64_t, double>(keys, values, stream);
  if (values.dtype == DType::f32) return keys_as<int32_t, float>(keys, values, stream);
  keys_as<int32_t, __nv_bfloat16>(keys, values, stream);
}

void values_of_keys(View values, ConstView keys, cudaStream_t stream) {
  CHECK(keys.dtype == key_type(values.dtype), "{} keys of {}", name_of(keys.dtype), name_of(values.dtype));
  if (values.dtype == DType::f64) return values_as<double, int64_t>(values, keys, stream);
  if (values.dtype == DType::f32) return values_as<float, int32_t>(values, keys, stream);
  values_as<__nv_bfloat16, int32_t>(values, keys, stream);
}

}  // namespace trencadis
