// StreamKernels: Kernels that run on a stream of their own instead of at once.
//
// Each call is enqueued with its views and numbers by value, and carried out by another Kernels when its turn comes. As
// everywhere with streams, the caller keeps the memory alive and untouched until an event recorded after the call has
// happened. Errors, those of CHECK included, are the stream's errors.
#pragma once

#include <memory>

#include "runtime/kernels.h"
#include "runtime/stream.h"

namespace trencadis {

// `inner` must be used by nobody else; the stream must outlive the last work on it.
std::unique_ptr<Kernels> make_stream_kernels(Stream& stream, std::shared_ptr<Kernels> inner);

}  // namespace trencadis
