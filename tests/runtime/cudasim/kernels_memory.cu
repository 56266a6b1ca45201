// Kernels about memory: shared, dynamic, copied in the background, atomic, and the tensor cores' fragments.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "device/async_copy.h"
#include "device/mma.h"
#include "device/shared_array.h"
#include "kernels.h"
#include "run_now.h"

namespace trencadis::sim_test {

namespace {

__global__ void __launch_bounds__(32) fresh_kernel(uint32_t* found) {
  __shared__ SharedArray<uint32_t, 32> fixed;
  DynamicSharedMemory dynamic;
  uint32_t* piece = dynamic.take<uint32_t>(32);
  uint32_t* other = dynamic.take<uint32_t>(1);
  const unsigned i = threadIdx.x;
  found[blockIdx.x * 96 + i] = fixed[i];
  found[blockIdx.x * 96 + 32 + i] = piece[i];
  found[blockIdx.x * 96 + 64 + i] = other[0];
  __syncthreads();
  fixed[i] = piece[i] = i;
  if (i == 0) other[0] = i;
}

__device__ uint32_t two_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

template <bool BF16>
__global__ void __launch_bounds__(32) multiply_kernel(float* d, const float* a, const float* b, const float* c) {
  constexpr int K = BF16 ? 16 : 8;
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  const auto A = [&](int row, int column) { return a[row * K + column]; };
  const auto B = [&](int row, int column) { return b[row * 8 + column]; };
  float of_c[4], of_d[4];
  for (int i = 0; i < 4; ++i) of_c[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  if constexpr (BF16) {
    const uint32_t of_a[] = {two_bf16(A(g, 2 * t), A(g, 2 * t + 1)), two_bf16(A(g + 8, 2 * t), A(g + 8, 2 * t + 1)),
                             two_bf16(A(g, 2 * t + 8), A(g, 2 * t + 9)),
                             two_bf16(A(g + 8, 2 * t + 8), A(g + 8, 2 * t + 9))};
    const uint32_t of_b[] = {two_bf16(B(2 * t, g), B(2 * t + 1, g)), two_bf16(B(2 * t + 8, g), B(2 * t + 9, g))};
    mma_m16n8k16(of_d, of_a, of_b, of_c);
  } else {
    const uint32_t of_a[] = {to_tf32(A(g, t)), to_tf32(A(g + 8, t)), to_tf32(A(g, t + 4)), to_tf32(A(g + 8, t + 4))};
    const uint32_t of_b[] = {to_tf32(B(t, g)), to_tf32(B(t + 4, g))};
    mma_m16n8k8(of_d, of_a, of_b, of_c);
  }
  for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = of_d[i];
}

__global__ void __launch_bounds__(32) tf32_kernel(uint32_t* out, const float* x, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += 32) out[i] = to_tf32(x[i]);
}

__global__ void __launch_bounds__(1) copies_kernel(float* seen, const float* x) {
  __shared__ SharedArray<float, 8> tile;
  const auto look = [&](int when) {
    for (int i = 0; i < 8; ++i) seen[when * 8 + i] = tile[i];
  };
  for (int i = 0; i < 8; ++i) tile[i] = 0.0f;
  copy_async<16>(&tile[0], x);
  copy_async_commit();
  copy_async<16>(&tile[4], x + 4);
  copy_async_commit();
  look(0);
  copy_async_wait<1>();
  look(1);
  copy_async_wait<0>();
  look(2);
}

__global__ void __launch_bounds__(64) atomics_kernel(int64_t* results) {
  __shared__ SharedArray<int, 8> ints;
  __shared__ SharedArray<unsigned long long, 2> longs;
  __shared__ SharedArray<float, 1> floats;
  const int i = static_cast<int>(threadIdx.x);
  if (i < 8) ints[i] = i == 3 || i == 4 ? -1 : i == 7 ? 0 : 100;
  if (i < 2) longs[i] = 0;
  if (i == 0) floats[0] = 0.5f;
  __syncthreads();
  atomicAdd(&ints[0], i);
  atomicMin(&ints[1], i - 7);
  atomicMax(&ints[2], 2 * i);
  atomicAnd(&ints[3], ~(1 << i % 8));
  atomicXor(&ints[4], 1 << i % 32);
  atomicOr(&ints[5], 1 << i % 16);
  atomicExch(&ints[6], 5);
  int seen = 0;  // a multiplication made of atomicCAS
  for (int old = -1; old != seen;) {
    old = seen;
    seen = atomicCAS(&ints[7], old, old + 2);
  }
  atomicAdd(&longs[0], 1ull << 40);
  atomicMax(&longs[1], static_cast<unsigned long long>(i) << 32);
  atomicAdd(&floats[0], 0.25f);
  __syncthreads();
  if (i < 8) results[i] = ints[i];
  if (i < 2) results[8 + i] = static_cast<int64_t>(longs[i]);
  if (i == 0) results[10] = static_cast<int64_t>(floats[0] * 4);
}

__global__ void __launch_bounds__(32) index_kernel(int index) {
  __shared__ SharedArray<float, 32> array;
  if (blockIdx.x == 2 && threadIdx.x == 7) array[index] = 1.0f;
}

__global__ void __launch_bounds__(128) empty_kernel() {}

}  // namespace

std::vector<uint32_t> fresh_shared_memory() {
  std::vector<uint32_t> found(3 * 96);
  run_now(fresh_kernel, 3, 32, 32 * 4 + 16, found.data());
  return found;
}

std::vector<float> multiply(bool bf16, const std::vector<float>& a, const std::vector<float>& b,
                            const std::vector<float>& c) {
  std::vector<float> d(16 * 8);
  run_now(bf16 ? multiply_kernel<true> : multiply_kernel<false>, 1, 32, 0, d.data(), a.data(), b.data(), c.data());
  return d;
}

std::vector<uint32_t> rounded_to_tf32(const std::vector<float>& x) {
  std::vector<uint32_t> out(x.size());
  run_now(tf32_kernel, 1, 32, 0, out.data(), x.data(), x.size());
  return out;
}

std::vector<float> copied_in_groups(const std::vector<float>& x) {
  std::vector<float> seen(24);
  run_now(copies_kernel, 1, 1, 0, seen.data(), x.data());
  return seen;
}

std::vector<int64_t> atomics() {
  std::vector<int64_t> results(11);
  run_now(atomics_kernel, 1, 64, 0, results.data());
  return results;
}

void index_shared(int index) { run_now(index_kernel, 3, 32, 0, index); }

void launch_threads(int threads) { run_now(empty_kernel, 1, threads, 0); }

}  // namespace trencadis::sim_test
