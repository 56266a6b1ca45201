// Owners of vendor handles: one small class each; and the one macro per vendor that turns a status into an Error.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <utility>

#include "runtime/check.h"

namespace trencadis {

// Throws Error with the call, the vendor's text, and file and line.
#define CUDA_CHECK(call)                                                                       \
  do {                                                                                         \
    const cudaError_t cuda_status_ = (call);                                                   \
    CHECK(cuda_status_ == cudaSuccess, "{}: {} ({})", #call, cudaGetErrorString(cuda_status_), \
          cudaGetErrorName(cuda_status_));                                                     \
  } while (0)
#define CUBLAS_CHECK(call)                                                                                  \
  do {                                                                                                      \
    const cublasStatus_t cublas_status_ = (call);                                                           \
    CHECK(cublas_status_ == CUBLAS_STATUS_SUCCESS, "{}: {}", #call, cublasGetStatusString(cublas_status_)); \
  } while (0)

// A cuBLAS handle on one stream. Products of f32 use TF32 tensor cores only if tf32 is set.
class CublasHandle {
 public:
  CublasHandle(cudaStream_t stream, bool tf32) : tf32_(tf32) {
    CUBLAS_CHECK(cublasCreate(&handle_));
    CUBLAS_CHECK(cublasSetStream(handle_, stream));
  }
  ~CublasHandle() { cublasDestroy(handle_); }
  CublasHandle(const CublasHandle&) = delete;
  CublasHandle& operator=(const CublasHandle&) = delete;

  cublasHandle_t get() const { return handle_; }
  bool tf32() const { return tf32_; }

 private:
  cublasHandle_t handle_ = nullptr;
  bool tf32_;
};

}  // namespace trencadis
