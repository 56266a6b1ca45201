// Bugs with memory: overruns, alignment, what was not initialised, copies that have not arrived, too much shared memory.
#include "device/async_copy.h"
#include "device/shared_array.h"
#include "plant.h"

namespace trencadis::planted {

namespace {

constexpr int N = 64;

// ---- each copies in to out, through shared memory

template <bool BROKEN>
__global__ void __launch_bounds__(N) shared_index_behind_the_end(float* out, const float* in) {
  __shared__ SharedArray<float, N> tile;
  const int i = static_cast<int>(threadIdx.x);
  tile[i + BROKEN] = in[i];
  __syncthreads();
  out[i] = tile[i + BROKEN];
}

template <bool BROKEN>
__global__ void __launch_bounds__(N) shared_index_before_the_begin(float* out, const float* in) {
  __shared__ SharedArray<float, N> tile;
  const int i = static_cast<int>(threadIdx.x);
  tile[i] = in[i];
  __syncthreads();
  const float before = i > 0 || BROKEN ? tile[i - 1] : -1.0f;
  out[i] = before < static_cast<float>(i) ? tile[i] : -1.0f;
}

// By a pointer, where no index is checked.
template <bool BROKEN>
__global__ void __launch_bounds__(N) dynamic_overrun(float* out, const float* in) {
  DynamicSharedMemory shared;
  float* tile = shared.take<float>(BROKEN ? N - 4 : N);
  const int i = static_cast<int>(threadIdx.x);
  tile[i] = in[i];
  __syncthreads();
  out[i] = tile[i];
}

template <bool BROKEN>
__global__ void __launch_bounds__(N) dynamic_more_than_launched(float* out, const float* in) {
  DynamicSharedMemory shared;
  float* tile = shared.take<float>(N);
  float* more = shared.take<float>(BROKEN ? 1 : 0);
  const int i = static_cast<int>(threadIdx.x);
  tile[i] = in[i];
  if (BROKEN && i == 0) more[0] = 0.0f;
  out[i] = tile[i];
}

template <bool BROKEN>
__global__ void __launch_bounds__(N) dynamic_cut_differently(float* out, const float* in) {
  DynamicSharedMemory shared;
  const int i = static_cast<int>(threadIdx.x);
  float* tile = shared.take<float>(BROKEN && i < 32 ? N / 2 : N);
  tile[i] = in[i];
  out[i] = tile[i];
}

// The tile's tail is multiplied by zero, which does not help: 0 * NaN.
template <bool BROKEN>
__global__ void __launch_bounds__(N) tail_not_initialised(float* out, const float* in) {
  __shared__ SharedArray<float, N> tile;
  const int i = static_cast<int>(threadIdx.x), n = N - 10;
  if (i < n)
    tile[i] = in[i];
  else if (!BROKEN)
    tile[i] = 0.0f;
  __syncthreads();
  float nothing = 0;
  for (int k = n; k < N; ++k) nothing += 0.0f * tile[k];
  out[i] = in[i] + nothing;
}

template <bool BROKEN>
__global__ void __launch_bounds__(N) wait_for_one_group_too_few(float* out, const float* in) {
  __shared__ SharedArray<float, N> tile;
  const int i = static_cast<int>(threadIdx.x);
  copy_async<4>(&tile[i], in + i);
  copy_async_commit();
  copy_async_wait<BROKEN ? 1 : 0>();
  __syncthreads();
  out[i] = tile[i];
  copy_async_wait<0>();
}

template <bool BROKEN>
__global__ void __launch_bounds__(N) no_wait_for_copies(float* out, const float* in) {
  __shared__ SharedArray<float, N> tile;
  const int i = static_cast<int>(threadIdx.x);
  copy_async<4>(&tile[i], in + i);
  copy_async_commit();
  if (!BROKEN) copy_async_wait<0>();
  out[i] = in[i];
}

// A wait is for the thread's own copies: the others' need a barrier.
template <bool BROKEN>
__global__ void __launch_bounds__(N) no_barrier_after_copies(float* out, const float* in) {
  __shared__ SharedArray<float, N> tile;
  const int i = static_cast<int>(threadIdx.x), other = N - 1 - i;
  copy_async<4>(&tile[i], in + i);
  copy_async_commit();
  copy_async_wait<0>();
  if (!BROKEN) __syncthreads();
  out[other] = tile[other];
}

template <bool BROKEN>
__global__ void __launch_bounds__(N) misaligned_copy(float* out, const float* in) {
  __shared__ SharedArray<float, N + 4> tile;
  const int i = static_cast<int>(threadIdx.x);
  if (i % 4 == 0) copy_async<16>(&tile[i + BROKEN], in + i);
  copy_async_commit();
  copy_async_wait<0>();
  __syncthreads();
  out[i] = tile[i + BROKEN];
}

template <bool BROKEN>
__global__ void __launch_bounds__(N) misaligned_float4(float* out, const float* in) {
  const int i = static_cast<int>(threadIdx.x);
  if (i % 4 != 0 || i + BROKEN + 4 > N) return;
  const float4 four = *reinterpret_cast<const float4*>(in + i + BROKEN);
  *reinterpret_cast<float4*>(out + i) = four;
}

template <bool BROKEN>
__global__ void __launch_bounds__(N) misaligned_shared_float4(float* out, const float* in) {
  __shared__ SharedArray<float, N + 1> tile;  // rows of N + 1 keep banks apart, and vectors out
  const int i = static_cast<int>(threadIdx.x);
  tile[i + BROKEN] = in[i];
  __syncthreads();
  if (i % 4 == 0) *reinterpret_cast<float4*>(out + i) = *reinterpret_cast<const float4*>(&tile[i + BROKEN]);
}

// Looks at the next element; the last one has none.
template <bool BROKEN>
__global__ void __launch_bounds__(N) read_behind_the_end(float* out, const float* in, int n) {
  const int i = static_cast<int>(blockIdx.x) * N + static_cast<int>(threadIdx.x);
  if (i >= n) return;
  out[i] = BROKEN || i + 1 < n ? in[i + 1] - 1.0f : in[i];
}

// The last block has no work for half of its threads.
template <bool BROKEN>
__global__ void __launch_bounds__(N) write_behind_the_end(float* out, const float* in, int n) {
  const int i = static_cast<int>(blockIdx.x) * N + static_cast<int>(threadIdx.x);
  const float x = i < n ? in[i] : 0.0f;
  if (BROKEN || i < n) out[i] = x;
}

// out was to be zero; the kernel adds.
__global__ void __launch_bounds__(N) add_kernel(float* out, const float* in) {
  atomicAdd(&out[threadIdx.x], in[threadIdx.x]);
}
__global__ void __launch_bounds__(N) zero_kernel(float* out) { out[threadIdx.x] = 0.0f; }

template <void (*RIGHT)(float*, const float*), void (*WRONG)(float*, const float*), int DYNAMIC = 0>
bool copies(bool broken) {
  Global<float> in(numbers(N)), out(N);
  launch(broken ? WRONG : RIGHT, 1, N, DYNAMIC, out.data(), in.data());
  const std::vector<float> got = out.get();
  for (size_t i = 0; i + 4 < N; ++i)
    if (got[i] != static_cast<float>(i)) return false;
  return true;
}

template <void (*RIGHT)(float*, const float*, int), void (*WRONG)(float*, const float*, int)>
bool copies_ragged(bool broken) {
  constexpr int n = N + N / 2;
  Global<float> in(numbers(n)), out(n);
  launch(broken ? WRONG : RIGHT, 2, N, 0, out.data(), in.data(), n);
  return out.get() == numbers(n);
}

bool output_not_cleared(bool broken) {
  Global<float> in(numbers(N)), out(N);
  if (!broken) launch(zero_kernel, 1, N, 0, out.data());
  launch(add_kernel, 1, N, 0, out.data(), in.data());
  return out.get() == numbers(N);
}

}  // namespace

#define PLANT(kernel) \
  { #kernel, copies < kernel < false>, kernel < true>> }
#define PLANT_DYNAMIC(kernel) \
  { #kernel, copies < kernel < false>, kernel < true>, N * 4> }
#define PLANT_RAGGED(kernel) \
  { #kernel, copies_ragged < kernel < false>, kernel < true>> }

std::vector<Bug> memory_bugs() {
  return {PLANT(shared_index_behind_the_end),
          PLANT(shared_index_before_the_begin),
          PLANT_DYNAMIC(dynamic_overrun),
          PLANT_DYNAMIC(dynamic_more_than_launched),
          PLANT_DYNAMIC(dynamic_cut_differently),
          PLANT(tail_not_initialised),
          PLANT(wait_for_one_group_too_few),
          PLANT(no_wait_for_copies),
          PLANT(no_barrier_after_copies),
          PLANT(misaligned_copy),
          PLANT(misaligned_float4),
          PLANT(misaligned_shared_float4),
          PLANT_RAGGED(read_behind_the_end),
          PLANT_RAGGED(write_behind_the_end),
          {"output_not_cleared", output_not_cleared}};
}

}  // namespace trencadis::planted
