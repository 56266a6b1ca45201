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

#include "runtime/cuda/argument.h"

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

// The call as the device sees it: checked pointers, absent ones null. A parameter of every kernel of the ladder.
template <typename T>
struct LayerNormBackwardArrays {
  T *dx, *dgamma, *dbeta;
  const T *dy, *x;
  const float *mean, *rstd;
  const T *gamma, *dresidual;
  int64_t N, C;
  bool accumulate;

  explicit LayerNormBackwardArrays(const LayerNormBackward& call) : N(call.N), C(call.C), accumulate(call.accumulate) {
    const char* kernel = "layer_norm_backward";
    dx = device_argument<T>(kernel, "dx", call.dx, N * C);
    dgamma = optional_argument<T>(kernel, "dgamma", call.dgamma, C);
    dbeta = optional_argument<T>(kernel, "dbeta", call.dbeta, C);
    dy = device_argument<T>(kernel, "dy", call.dy, N * C);
    x = device_argument<T>(kernel, "x", call.x, N * C);
    mean = device_argument<float>(kernel, "mean", call.mean, N);
    rstd = device_argument<float>(kernel, "rstd", call.rstd, N);
    gamma = device_argument<T>(kernel, "gamma", call.gamma, C);
    dresidual = optional_argument<T>(kernel, "dresidual", call.dresidual, N * C);
  }
};

}  // namespace trencadis
