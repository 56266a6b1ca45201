// Dropout: y = x * keep / (1 - p), with the mask of runtime/random.h: the bits of the CPU's.
//
// A thread has a group of one sample's elements: one counter of Philox makes four factors. Groups are counted from the
// start of the sample, so counters never straddle threads. Backward is the same call on the gradient.
#include "runtime/cuda/argument.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/philox.cuh"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

constexpr int kBlock = 256;

// In place allowed: each thread reads what it writes.
template <bool kAligned, typename T>
__global__ void __launch_bounds__(kBlock)
    dropout_kernel(T* y, const T* x, int64_t B, int64_t n, int64_t groups_of_a_sample, DropoutFactors4 mask) {
  for (int64_t i = grid_thread(); i < B * groups_of_a_sample; i += grid_threads()) {
    const int64_t b = i / groups_of_a_sample, first = i % groups_of_a_sample * kGroup<T>, left = n - first;
    Group<T> group = load_group<kAligned>(x + b * n + first, left);
#pragma unroll
    for (int part = 0; part < kGroup<T>; part += 4) {
      const float4 factor = mask.factors(b, (first + part) / 4);
      group.v[part + 0] *= factor.x;
      group.v[part + 1] *= factor.y;
      group.v[part + 2] *= factor.z;
      group.v[part + 3] *= factor.w;
    }
    store_group<kAligned>(y + b * n + first, group, left);
  }
}

}  // namespace

void CudaKernels::dropout(View y, ConstView x, int64_t B, int64_t n, const DropoutMask& mask) {
  CHECK(mask.probability >= 0 && mask.probability < 1, "dropout: probability {} is not in [0, 1)", mask.probability);
  dispatch_float("dropout", x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>("dropout", "y", y, B * n);
    const T* in = device_argument<T>("dropout", "x", x, B * n);
    if (mask.probability == 0) {
      if (out != in) copy(y, ConstView(in, B * n));
      return;
    }
    const int64_t groups = divide_up(n, kGroup<T>);
    dispatch_bool(aligned16(out, in) && aligned_rows<T>(B, n), [&](auto aligned) {
      launch(stream_, stride_blocks(B * groups, kBlock), kBlock, 0, dropout_kernel<aligned(), T>, out, in, B, n, groups,
             DropoutFactors4(mask));
    });
  });
}

}  // namespace trencadis
