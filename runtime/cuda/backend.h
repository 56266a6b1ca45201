// A GPU as a device: the backend whose streams, memory and kernels are CUDA's. Built by nvcc for GPUs, and for
// runtime/cudasim, where there is none, from the same sources.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/context.h"
#include "runtime/cuda/attention_choice.h"

namespace trencadis {

struct CudaOptions {
  int device = 0;
  // Products of f32 on tensor cores, which round the factors to 10 bits: faster, and other bits.
  bool tf32 = false;
  // cudnn is an Error where cuDNN is not built in, and for calls that it does not take (cudnn/sdpa.h).
  AttentionChoice attention = AttentionChoice::automatic;
  // Pinned host memory for copies.
  int64_t staging_bytes = 6 << 20;
  // For tests: blocks arrive as NaN, written by the compute stream.
  bool poison = false;
  // For tests with AddressSanitizer: blocks are cut to the byte (CachingPool::Options).
  bool exact_blocks = false;
};

// The calling thread's device becomes options.device. Throws Error when there is no such device, or no cuDNN where it is
// asked for.
//
// Copies: copy_from_host() returns when the bytes are in staging memory, copy_to_host() when they have arrived; both are
// ordered on the compute stream. Tracing: host code that is enqueued on streams is not recorded, nor are kernels: their
// time is the device's, and NVIDIA's Nsight Systems shows it; what the host does (ZeRO's units, the trainer's steps) is.
std::unique_ptr<Backend> make_cuda_backend(CudaOptions options = {});

}  // namespace trencadis
