// CUDA's calls on streams and events, and host functions. Signatures are those of NVIDIA's header.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "runtime/check.h"
#include "runtime/cudasim/api.h"
#include "runtime/cudasim/device_memory.h"
#include "runtime/cudasim/executor_state.h"

using namespace trencadis::cudasim;  // NOLINT: this file defines C functions

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int) {
  const Executor::Call call("cudaStreamCreate");
  *stream = Executor::instance().make_stream(current_device(), (flags & cudaStreamNonBlocking) == 0);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }

// Does not wait: what is queued still runs.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Executor::Call call("cudaStreamDestroy");
  if (!stream) return set_last_error(cudaErrorInvalidResourceHandle);
  Executor::instance().destroy_stream(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t name) {
  Executor::Call call("cudaStreamSynchronize");
  Executor& executor = Executor::instance();
  executor.wait_for(call, executor.resolve(name, current_device())->last);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t name) {
  const Executor::Call call("cudaStreamQuery");
  Executor& executor = Executor::instance();
  return executor.poll(executor.resolve(name, current_device())->last) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
  Executor::Call call("cudaDeviceSynchronize");
  Executor& executor = Executor::instance();
  std::vector<std::shared_ptr<Mark>> last;  // a stream may end while this waits for another one
  for (const CUstream_st* stream : executor.streams())
    if (stream->device == current_device()) last.push_back(stream->last);
  for (const auto& mark : last) executor.wait_for(call, mark);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t name, cudaHostFn_t function, void* argument) {
  auto operation = std::make_unique<Operation>();
  operation->what = "host function";
  operation->work = [=] { function(argument); };
  operation->is_host_function = true;
  const Executor::Call call("cudaLaunchHostFunc");
  Executor& executor = Executor::instance();
  executor.append(executor.resolve(name, current_device()), std::move(operation));
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  const Executor::Call call("cudaEventCreate");
  auto made = std::make_unique<CUevent_st>();
  made->timing = (flags & cudaEventDisableTiming) == 0;
  *event = made.release();  // until cudaEventDestroy()
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

// Whoever waits for it keeps what it had recorded.
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Executor::Call call("cudaEventDestroy");
  if (!event) return set_last_error(cudaErrorInvalidResourceHandle);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t name) {
  const Executor::Call call("cudaEventRecord");
  Executor& executor = Executor::instance();
  event->recorded = true;
  event->mark = executor.resolve(name, current_device())->last;
  event->time = std::chrono::steady_clock::now();
  return cudaSuccess;
}

// An event that was never recorded is no error in CUDA, and orders nothing.
cudaError_t cudaStreamWaitEvent(cudaStream_t name, cudaEvent_t event, unsigned int) {
  const Executor::Call call("cudaStreamWaitEvent");
  if (!event->mark) return cudaSuccess;
  Executor& executor = Executor::instance();
  auto operation = std::make_unique<Operation>();
  operation->what = "wait for an event";
  operation->after.push_back(event->mark);
  executor.append(executor.resolve(name, current_device()), std::move(operation));
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Executor::Call call("cudaEventSynchronize");
  const std::shared_ptr<Mark> mark = event->mark;
  Executor::instance().wait_for(call, mark);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Executor::Call call("cudaEventQuery");
  return Executor::instance().poll(event->mark) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const Executor::Call call("cudaEventElapsedTime");
  for (const CUevent_st* event : {from, to}) {
    if (!event->recorded || !event->timing) return set_last_error(cudaErrorInvalidResourceHandle);
    if (event->mark && !event->mark->done) return set_last_error(cudaErrorNotReady);
  }
  const auto time = [](const CUevent_st& event) { return event.mark ? event.mark->time : event.time; };
  *milliseconds = std::chrono::duration<float, std::milli>(time(*to) - time(*from)).count();
  return cudaSuccess;
}

}  // extern "C"
