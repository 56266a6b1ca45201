// Whose attention kernels the CUDA backend runs.
#pragma once

namespace trencadis {

enum class AttentionChoice {
  automatic,  // cuDNN's where it is built in and takes the call, else this project's
  native,     // this project's: runtime/cuda/attention.cu
  cudnn       // cuDNN's; a call that it does not take is an Error
};

}  // namespace trencadis
