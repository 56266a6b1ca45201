// The second stage of sums over rows (column_sums.cuh).
#include "runtime/cuda/column_sums.cuh"

namespace trencadis {

namespace {

constexpr int kBlock = 256;

// A block has 32 columns, one a lane; warp w adds chunks w, w + kWarps, ..., then the first adds the warps'.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    add_partials_kernel(T* out, const float* partials, int64_t chunks, int64_t K, bool accumulate) {
  constexpr int kWarps = kBlock / kWarp;
  __shared__ SharedArray<float, kBlock> sums;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t k = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  float sum = 0;
  if (k < K)
    for (int64_t chunk = warp; chunk < chunks; chunk += kWarps) sum += partials[chunk * K + k];
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (warp == 0 && k < K) {
    for (int w = 1; w < kWarps; ++w) sum += sums[w * kWarp + lane];
    out[k] = from_float<T>(accumulate ? to_float(out[k]) + sum : sum);
  }
}

}  // namespace

template <typename T>
void add_partials(cudaStream_t stream, T* out, const float* partials, int64_t chunks, int64_t K, bool accumulate) {
  launch(stream, exact_blocks(divide_up(K, kWarp)), kBlock, 0, add_partials_kernel<T>, out, partials, chunks, K,
         accumulate);
}
template void add_partials(cudaStream_t, float*, const float*, int64_t, int64_t, bool);
template void add_partials(cudaStream_t, __nv_bfloat16*, const float*, int64_t, int64_t, bool);

}  // namespace trencadis
