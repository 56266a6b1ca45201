// What the files of the simulated CUDA API share.
#pragma once

#include <cuda_runtime_api.h>

namespace trencadis::cudasim {

// What cudaGetLastError() of this host thread returns next. Returns `error`.
cudaError_t set_last_error(cudaError_t error);

}  // namespace trencadis::cudasim
