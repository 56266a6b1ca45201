// The arguments of layer norm's backward pass as its kernels take them.
#pragma once

#include "runtime/cuda/argument.h"
#include "runtime/cuda/ladder/layer_norm_backward.h"

namespace trencadis {

// Checked pointers, absent ones null. A parameter of every kernel of the ladder.
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
