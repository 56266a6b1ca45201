// CUDA's calls on memory: allocation, copies, fills. Signatures are those of NVIDIA's header.
//
// Copies keep CUDA's promises and no more. Between pinned and device memory they are asynchronous: the host memory is read
// or written when the stream gets there. A copy from pageable memory may be followed at once by a change of it: CUDA
// stages it. A copy to pageable memory returns when it is done.
#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <vector>

#include "runtime/check.h"
#include "runtime/cudasim/api.h"
#include "runtime/cudasim/device_memory.h"
#include "runtime/cudasim/executor_state.h"

namespace trencadis::cudasim {
namespace {

// What was asked for must be what the addresses are.
void check_kind(cudaMemcpyKind kind, Residence to, Residence from, size_t bytes) {
  const bool to_device = to == Residence::device, from_device = from == Residence::device;
  const bool fits = kind == cudaMemcpyDefault ||
                    (to_device     ? from_device ? kind == cudaMemcpyDeviceToDevice : kind == cudaMemcpyHostToDevice
                     : from_device ? kind == cudaMemcpyDeviceToHost
                                   : kind == cudaMemcpyHostToHost);
  if (!fits)
    fail(fmt::format("a copy of {} bytes from {} to {} memory is called kind {} of cudaMemcpyKind", bytes,
                     from_device ? "device" : "host", to_device ? "device" : "host", static_cast<int>(kind)));
}

std::unique_ptr<Operation> operation(std::string what, std::function<void()> work) {
  auto made = std::make_unique<Operation>();
  made->what = std::move(what);
  made->work = std::move(work);
  return made;
}

cudaError_t copy(Executor::Call& call, void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t name,
                 bool is_synchronous) {
  if (bytes == 0) return cudaSuccess;
  Executor& executor = Executor::instance();
  CUstream_st* stream = executor.resolve(name, current_device());
  const Residence to_place = residence_of(to, bytes), from_place = residence_of(from, bytes);
  check_kind(kind, to_place, from_place, bytes);
  const bool from_host = from_place != Residence::device, to_host = to_place != Residence::device;
  std::string what =
      fmt::format("copy of {} bytes {} to {}", bytes, from_host ? "host" : "device", to_host ? "host" : "device");
  if (from_place == Residence::pageable) {
    const char* bytes_from = static_cast<const char*>(from);
    auto staged = std::make_shared<std::vector<char>>(bytes_from, bytes_from + bytes);
    // The operation alone owns them, and ends them as part of its work.
    executor.append(stream, operation(std::move(what), [to, bytes, staged = std::move(staged)] {
                      std::memcpy(to, staged->data(), bytes);
                    }));
  } else {
    executor.append(stream, operation(std::move(what), [=] { std::memmove(to, from, bytes); }));
  }
  // cudaMemcpy between two blocks of device memory does not make the host wait.
  if (to_place == Residence::pageable || (is_synchronous && (from_host || to_host)))
    executor.wait_for(call, stream->last);
  return cudaSuccess;
}

cudaError_t fill(void* data, int value, size_t bytes, cudaStream_t name) {
  if (bytes == 0) return cudaSuccess;
  if (residence_of(data, bytes) != Residence::device) fail("cudaMemset of memory that is not the device's");
  Executor& executor = Executor::instance();
  executor.append(executor.resolve(name, current_device()),
                  operation(fmt::format("fill of {} bytes", bytes), [=] { std::memset(data, value, bytes); }));
  return cudaSuccess;
}

}  // namespace
}  // namespace trencadis::cudasim

using namespace trencadis::cudasim;  // NOLINT: this file defines C functions

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  const Executor::Call call("cudaMalloc");
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  *data = allocate_device(current_device(), bytes);
  return *data ? cudaSuccess : set_last_error(cudaErrorMemoryAllocation);
}

// Waits for the whole device first, as CUDA does.
cudaError_t cudaFree(void* data) {
  if (!data) return cudaSuccess;
  if (const cudaError_t error = cudaDeviceSynchronize()) return error;
  const Executor::Call call("cudaFree");
  return free_device(data) ? cudaSuccess : set_last_error(cudaErrorInvalidValue);
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned int) {
  const Executor::Call call("cudaHostAlloc");
  *data = allocate_pinned(bytes);
  return *data ? cudaSuccess : set_last_error(cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void** data, size_t bytes) { return cudaHostAlloc(data, bytes, cudaHostAllocDefault); }

cudaError_t cudaFreeHost(void* data) {
  if (!data) return cudaSuccess;
  if (const cudaError_t error = cudaDeviceSynchronize()) return error;
  const Executor::Call call("cudaFreeHost");
  return free_pinned(data) ? cudaSuccess : set_last_error(cudaErrorInvalidValue);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  Executor::Call call("cudaMemcpyAsync");
  return copy(call, to, from, bytes, kind, stream, /*is_synchronous=*/false);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  Executor::Call call("cudaMemcpy");
  return copy(call, to, from, bytes, kind, cudaStreamLegacy, /*is_synchronous=*/true);
}

cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  const Executor::Call call("cudaMemsetAsync");
  return fill(data, value, bytes, stream);
}

// Asynchronous for the host too: only the legacy stream orders it.
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  const Executor::Call call("cudaMemset");
  return fill(data, value, bytes, cudaStreamLegacy);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Executor::Call call("cudaMemGetInfo");
  const DeviceMemory memory = device_memory(current_device());
  *total = memory.total;
  *free = memory.total - memory.used;
  return cudaSuccess;
}

}  // extern "C"
