// Attention by cuDNN ("SDPA", scaled dot product attention): NVIDIA's own fused kernels for bf16 on tensor cores, behind
// the arguments of Kernels::attention.
//
// Optional, and a whole file each way: CMake builds sdpa.cpp where it finds cuDNN 9 and its C++ front end, else
// not_built.cpp. The simulator's build has no cuDNN and takes the second.
//
// What is the same as in the native kernels: layout and strides, causal mask, shared key/value heads, and lse, the natural
// logarithm of the sum of exp(scale q.k): cuDNN calls it the statistics. So forward by the one and backward by the other
// fit together. What is not: dropout. cuDNN draws its own mask, and this project's is the same on every device, so a call
// with dropout is refused.
//
// The order of cuDNN's sums is asked to be fixed (its "deterministic algorithm"), as Kernels promises. It costs memory: in
// backward, on Hopper, up to B*H*T*T bf16 of scratch.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "runtime/allocator.h"
#include "runtime/kernels.h"

namespace trencadis {

class CudnnAttention {
 public:
  // Whether sdpa.cpp is in this build; if not, why.
  static bool built();
  static std::string why_not_built();

  // Everything runs on `stream`; scratch is memory in its order. Both must outlive this. Throws Error when cuDNN cannot
  // start. Not thread-safe, like the Kernels that owns it.
  CudnnAttention(cudaStream_t stream, Allocator& scratch);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // Each puts its work into the stream and returns an empty text, or does nothing and returns why cuDNN does not take the
  // call: elements that are not bf16, dropout, alignment, or what cuDNN itself says of the shape on this GPU. The answer
  // depends on the arguments alone. The views must have been checked (attention_arrays.h).
  std::string forward(View o, View lse, ConstView q, ConstView k, ConstView v, const AttentionShape& shape);
  std::string backward(View dq, View dk, View dv, ConstView d_o, ConstView o, ConstView lse, ConstView q, ConstView k,
                       ConstView v, const AttentionShape& shape);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trencadis
