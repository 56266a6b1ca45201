// The ladder of layer norm's backward pass: one computation, three times, each rung a file to lay beside the one below.
//
//   naive  one thread a row for dx, one thread a column for dgamma and dbeta: the formula, and nothing else
//   tiled  one warp a row, one block a tile of columns: neighbouring threads read neighbouring memory
//   fast   one pass over dy and x for all three outputs, rows shared out over the whole GPU; what CudaKernels runs
//
// xh = (x - mean) * rstd; g = gamma * dy; dx = rstd * (g - mean_C(g) - xh * mean_C(g * xh)) [+ dresidual];
// dgamma = sum over N of dy * xh; dbeta = sum over N of dy. The same formula on the CPU: runtime/cpu/layer_norm.cpp.
//
// All rungs take what Kernels::layer_norm_backward takes, put their kernels into `stream` and return. `scratch` is
// memory in the order of that stream. Their sums have different orders, so their results agree to rounding only.
#pragma once

#include <cuda_runtime_api.h>

#include "runtime/allocator.h"
#include "runtime/view.h"

namespace trencadis {

struct LayerNormBackward {
  View dx, dgamma, dbeta;                         // (N,C), (C), (C); dgamma and dbeta may be empty
  ConstView dy, x, mean, rstd, gamma, dresidual;  // (N,C), (N,C), (N), (N), (C), (N,C) or empty
  int64_t N = 0, C = 0;
  bool accumulate = false;  // into dgamma and dbeta
};

void layer_norm_backward_naive(cudaStream_t stream, Allocator& scratch, const LayerNormBackward& call);
void layer_norm_backward_tiled(cudaStream_t stream, Allocator& scratch, const LayerNormBackward& call);
void layer_norm_backward_fast(cudaStream_t stream, Allocator& scratch, const LayerNormBackward& call);

}  // namespace trencadis
