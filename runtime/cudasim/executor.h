// Streams: in-order queues of work.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

namespace trencadis::cudasim {

// Puts work at the end of a stream. what: for messages and traces, a kernel's name for instance.
void enqueue(cudaStream_t stream, std::string what, std::function<void()> work);

}  // namespace trencadis::cudasim
