// Bugs inside of a warp: shuffles, votes, __syncwarp, tensor cores.
#include "device/mma.h"
#include "device/shared_array.h"
#include "plant.h"

namespace trencadis::planted {

namespace {

constexpr unsigned kAll = 0xffffffffu;

// ---- each sums 0 + 1 + ... + 31 in every lane, or at least in lane 0

template <bool BROKEN>
__global__ void __launch_bounds__(32) wrong_first_offset(float* out, const float* in) {
  float sum = in[threadIdx.x];
  for (int offset = BROKEN ? 8 : 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAll, sum, offset);
  out[threadIdx.x] = sum;
}

template <bool BROKEN>
__global__ void __launch_bounds__(32) mask_without_the_caller(float* out, const float* in) {
  float sum = in[threadIdx.x];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(BROKEN ? 0xfffffffeu : kAll, sum, offset);
  out[threadIdx.x] = sum;
}

// Half a warp works, and reads from the other half.
template <bool BROKEN>
__global__ void __launch_bounds__(32) read_outside_of_the_mask(float* out, const float* in) {
  float sum = in[threadIdx.x] + in[threadIdx.x ^ 16];
  if (threadIdx.x < 16)
    for (int offset = BROKEN ? 16 : 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(0x0000ffffu, sum, offset);
  out[threadIdx.x] = sum;
}

template <bool BROKEN>
__global__ void __launch_bounds__(32) shuffle_in_a_branch(float* out, const float* in) {
  float sum = in[threadIdx.x];
  if (BROKEN) {
    if (threadIdx.x < 16) sum += __shfl_down_sync(kAll, sum, 16);
  } else {
    sum += __shfl_down_sync(kAll, sum, 16);
  }
  for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_down_sync(kAll, sum, offset);
  out[threadIdx.x] = sum;
}

template <bool BROKEN>
__global__ void __launch_bounds__(32) shuffle_from_an_exited_lane(float* out, const float* in) {
  float sum = in[threadIdx.x];
  if (BROKEN && threadIdx.x >= 16) return;
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(kAll, sum, offset);
  out[threadIdx.x] = sum;
}

template <bool BROKEN>
__global__ void __launch_bounds__(32) lanes_in_different_calls(float* out, const float* in) {
  float sum = in[threadIdx.x];
  if (BROKEN && threadIdx.x >= 16)
    sum += __shfl_up_sync(kAll, sum, 16);
  else if (BROKEN)
    sum += __shfl_down_sync(kAll, sum, 16);
  else
    sum += __shfl_xor_sync(kAll, sum, 16);
  for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAll, sum, offset);
  out[threadIdx.x] = sum;
}

template <bool BROKEN>
__global__ void __launch_bounds__(32) wrong_segment(float* out, const float* in) {
  float sum = in[threadIdx.x];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(kAll, sum, offset, BROKEN ? 16 : 32);
  out[threadIdx.x] = sum;
}

template <bool BROKEN>
__global__ void __launch_bounds__(32) reduce_in_a_branch(float* out, const float* in) {
  const int value = static_cast<int>(in[threadIdx.x]);
  int sum = value;
  if (!BROKEN || value > 0) sum = __reduce_add_sync(kAll, value);
  out[threadIdx.x] = static_cast<float>(sum);
}

// ---- shared memory of one warp

template <bool BROKEN>
__global__ void __launch_bounds__(32) no_syncwarp_before_read(float* out, const float* in) {
  __shared__ SharedArray<float, 32> row;
  row[threadIdx.x] = in[threadIdx.x];
  if (!BROKEN) __syncwarp();
  float sum = 0;
  for (int i = 0; i < 32; ++i) sum += row[i];
  out[threadIdx.x] = sum;
}

// The second row is written while a slower lane reads the first. A shuffle is no barrier for memory.
template <bool BROKEN>
__global__ void __launch_bounds__(32) shuffle_for_syncwarp(float* out, const float* in) {
  __shared__ SharedArray<float, 32> row;
  float sum = 0;
  for (int round = 0; round < 2; ++round) {
    row[threadIdx.x] = round == 0 ? in[threadIdx.x] : 0.0f;
    __syncwarp();
    for (int i = 0; i < 32; ++i) sum += row[i];
    if (BROKEN)
      sum = __shfl_sync(kAll, sum, static_cast<int>(threadIdx.x));
    else
      __syncwarp();
  }
  out[threadIdx.x] = sum;
}

template <void (*RIGHT)(float*, const float*), void (*WRONG)(float*, const float*)>
bool sums(bool broken) {
  Global<float> in(numbers(32)), out(32);
  launch(broken ? WRONG : RIGHT, 1, 32, 0, out.data(), in.data());
  return out.get()[0] == 31.0f * 32.0f / 2.0f;
}

// ---- tensor cores

template <bool BROKEN>
__global__ void __launch_bounds__(32) fragments_exchanged(float* out) {
  const unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
  const uint32_t one = __float_as_uint(1.0f), two = __float_as_uint(2.0f);
  // A (16,8): row r has a one in column r, row 8 + r a two.
  uint32_t a[4] = {g == t ? one : 0, g == t ? two : 0, g == t + 4 ? one : 0, g == t + 4 ? two : 0};
  if (BROKEN) {
    const uint32_t first = a[1];
    a[1] = a[2];
    a[2] = first;
  }
  const uint32_t b[2] = {one, one};
  const float zero[4] = {};
  float d[4];
  mma_m16n8k8(d, a, b, zero);
  for (unsigned i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

template <bool BROKEN>
__global__ void __launch_bounds__(32) mma_without_all_lanes(float* out) {
  if (BROKEN && threadIdx.x == 31) return;
  const uint32_t a[4] = {}, b[2] = {};
  const float one[4] = {1, 1, 1, 1};
  float d[4];
  mma_m16n8k16(d, a, b, one);
  out[threadIdx.x] = d[0];
}

bool exchanged(bool broken) {
  Global<float> out(16 * 8);
  launch(broken ? fragments_exchanged<true> : fragments_exchanged<false>, 1, 32, 0, out.data());
  const std::vector<float> got = out.get();
  for (size_t i = 0; i < got.size(); ++i)
    if (got[i] != (i < 64 ? 1.0f : 2.0f)) return false;
  return true;
}

bool not_all_lanes(bool broken) {
  Global<float> out(32);
  launch(broken ? mma_without_all_lanes<true> : mma_without_all_lanes<false>, 1, 32, 0, out.data());
  return out.get()[0] == 1.0f;
}

}  // namespace

#define PLANT(kernel) \
  { #kernel, sums < kernel < false>, kernel < true>> }

std::vector<Bug> warp_bugs() {
  return {PLANT(wrong_first_offset),   PLANT(mask_without_the_caller),     PLANT(read_outside_of_the_mask),
          PLANT(shuffle_in_a_branch),  PLANT(shuffle_from_an_exited_lane), PLANT(lanes_in_different_calls),
          PLANT(wrong_segment),        PLANT(reduce_in_a_branch),          PLANT(no_syncwarp_before_read),
          PLANT(shuffle_for_syncwarp), {"fragments_exchanged", exchanged}, {"mma_without_all_lanes", not_all_lanes}};
}

}  // namespace trencadis::planted
