// Bugs with barriers of a block.
#include "device/shared_array.h"
#include "plant.h"

namespace trencadis::planted {

namespace {

constexpr int N = 64;

// out = in, backwards; through shared memory.
bool is_reversed(const std::vector<float>& out) {
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i] != static_cast<float>(i / N * N + (N - 1 - i % N))) return false;
  return true;
}

template <bool BROKEN>
__global__ void __launch_bounds__(N) no_barrier_before_read(float* out, const float* in) {
  __shared__ SharedArray<float, N> tile;
  const int i = static_cast<int>(threadIdx.x);
  tile[i] = in[i];
  if (!BROKEN) __syncthreads();
  out[i] = tile[N - 1 - i];
}

// The tile is used twice, and filled again before all have read it.
template <bool BROKEN>
__global__ void __launch_bounds__(N) no_barrier_before_reuse(float* out, const float* in) {
  __shared__ SharedArray<float, N> tile;
  const int i = static_cast<int>(threadIdx.x);
  for (int round = 0; round < 2; ++round) {
    tile[i] = in[round * N + i];
    __syncthreads();
    out[round * N + i] = tile[N - 1 - i];
    if (!BROKEN) __syncthreads();
  }
}

// A warp may not stand in for a block.
template <bool BROKEN>
__global__ void __launch_bounds__(N) syncwarp_for_syncthreads(float* out, const float* in) {
  __shared__ SharedArray<float, N> tile;
  const int i = static_cast<int>(threadIdx.x);
  tile[i] = in[i];
  if (BROKEN)
    __syncwarp();
  else
    __syncthreads();
  out[i] = tile[N - 1 - i];
}

template <bool BROKEN>
__global__ void __launch_bounds__(N) barrier_in_a_branch(float* out, const float* in) {
  __shared__ SharedArray<float, N> tile;
  const int i = static_cast<int>(threadIdx.x);
  tile[i] = in[i];
  if (!BROKEN || i < 32) __syncthreads();
  out[i] = tile[N - 1 - i];
}

template <bool BROKEN>
__global__ void __launch_bounds__(N) exit_before_barrier(float* out, const float* in, int n) {
  __shared__ SharedArray<float, N> tile;
  const int i = static_cast<int>(threadIdx.x);
  if (BROKEN && i >= n) return;
  if (i < n) tile[i] = in[i];
  __syncthreads();
  if (i < n) out[i] = tile[n - 1 - i];
}

// Both halves wait, but not in the same place: the hardware may pair them, the language does not.
template <bool BROKEN>
__global__ void __launch_bounds__(N) two_barriers_for_one(float* out, const float* in) {
  __shared__ SharedArray<float, N> tile;
  const int i = static_cast<int>(threadIdx.x);
  tile[i] = in[i];
  if (BROKEN) {
    if (i < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  } else {
    __syncthreads();
  }
  out[i] = tile[N - 1 - i];
}

// The number of rounds differs between threads.
template <bool BROKEN>
__global__ void __launch_bounds__(N) barrier_in_an_uneven_loop(float* out, const float* in, int n) {
  __shared__ SharedArray<float, 2 * N> tile;
  const int i = static_cast<int>(threadIdx.x);
  const int end = BROKEN ? n - 2 * i : n;
  for (int begin = 0; begin < end; begin += N) {
    if (begin + i < n) tile[begin + i] = in[begin + i];
    __syncthreads();
  }
  for (int k = i; k < n; k += N) out[k] = tile[k / N * N + N - 1 - k % N];
}

// All but one thread count.
template <bool BROKEN>
__global__ void __launch_bounds__(N) vote_in_a_branch(float* out, const float* in) {
  const int i = static_cast<int>(threadIdx.x);
  int positive = -1;
  if (!BROKEN || i > 0) positive = __syncthreads_count(in[i] >= 0.0f);
  out[i] = positive == N ? static_cast<float>(N - 1 - i) : -1.0f;
}

template <typename... More>
bool reverses(void (*kernel)(float*, const float*, More...), size_t n, More... more) {
  Global<float> in(numbers(n)), out(n);
  launch(kernel, 1, N, 0, out.data(), in.data(), more...);
  return is_reversed(out.get());
}

}  // namespace

#define PLANT(kernel, ...)                                                                            \
  {                                                                                                   \
#kernel, [](bool broken) { return reverses(broken ? kernel<true> : kernel<false>, __VA_ARGS__); } \
  }

std::vector<Bug> sync_bugs() {
  return {PLANT(no_barrier_before_read, N),
          PLANT(no_barrier_before_reuse, 2 * N),
          PLANT(syncwarp_for_syncthreads, N),
          PLANT(barrier_in_a_branch, N),
          {"exit_before_barrier",
           [](bool broken) {
             Global<float> in(numbers(40)), out(40);
             launch(broken ? exit_before_barrier<true> : exit_before_barrier<false>, 1, N, 0, out.data(), in.data(),
                    40);
             const std::vector<float> got = out.get();
             return got[0] == 39.0f && got[39] == 0.0f;
           }},
          PLANT(two_barriers_for_one, N),
          PLANT(barrier_in_an_uneven_loop, 2 * N, 2 * N),
          PLANT(vote_in_a_branch, N)};
}

}  // namespace trencadis::planted
