// In place of sdpa.cpp, where CMake found no cuDNN or no front end to it, and in the simulator.
#include "runtime/check.h"
#include "runtime/cuda/cudnn/sdpa.h"

namespace trencadis {

struct CudnnAttention::State {};

bool CudnnAttention::built() { return false; }
std::string CudnnAttention::why_not_built() {
  return "this build has no cuDNN; install cuDNN 9 and the headers of its front end (PyPI: nvidia-cudnn-frontend), then "
         "configure again";
}

CudnnAttention::CudnnAttention(cudaStream_t, Allocator&) { CHECK(false, "attention by cuDNN: {}", why_not_built()); }
CudnnAttention::~CudnnAttention() = default;

std::string CudnnAttention::forward(View, View, ConstView, ConstView, ConstView, const AttentionShape&) {
  return why_not_built();
}
std::string CudnnAttention::backward(View, View, View, ConstView, ConstView, ConstView, ConstView, ConstView, ConstView,
                                     const AttentionShape&) {
  return why_not_built();
}

}  // namespace trencadis
