// Streams and events of a GPU behind the Stream and Event of runtime/stream.h.
//
// Kernels and copies are put on handle() directly. Host code (enqueue) runs on a thread of the CUDA driver, in stream
// order, and may not call CUDA. What it throws is remembered: the stream drops its later host code, and the error comes
// out of synchronize(), of waits for later events of the stream, and goes over to streams that wait for such events.
// Kernels are not dropped: they have no way to fail but ending the process's use of the device.
//
// Threads: a device is current per host thread (cudaSetDevice); a thread other than the one that made the backend calls
// cudaSetDevice first.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/stream.h"

namespace trencadis {

// cudaEvent_ts that are not in use: making one costs microseconds, and a training step records hundreds. Thread-safe.
class EventPool {
 public:
  EventPool() = default;
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  cudaEvent_t take();
  void give(cudaEvent_t event);  // whoever waits for its last record already does

 private:
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

// The first error of a stream's host code. Shared by the stream, its events and its queued work.
class HostErrors {
 public:
  void set(int64_t work, std::exception_ptr error);  // keeps the first
  bool failed_by(int64_t work) const;                // one of the pieces of work up to this number failed
  void rethrow_by(int64_t work) const;               // throws then

 private:
  mutable std::mutex mutex_;
  int64_t failed_ = std::numeric_limits<int64_t>::max();
  std::exception_ptr error_;
};

class CudaStream final : public Stream {
 public:
  CudaStream(std::string name, std::shared_ptr<EventPool> events);
  ~CudaStream() override;  // waits until the stream is empty
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  // The stream as what it is; throws Error if it is another device's.
  static CudaStream& of(Stream& stream);
  cudaStream_t handle() const { return handle_; }

  void enqueue(std::string what, std::function<void()> work) override;
  Event record() override;
  // Of a GPU's event: the host goes on at once. Of another device's: the host waits for it here.
  void wait(const Event& event) override;
  void synchronize() override;
  const std::string& name() const override { return name_; }

 private:
  const std::string name_;
  const std::shared_ptr<EventPool> events_;
  const std::shared_ptr<HostErrors> errors_ = std::make_shared<HostErrors>();
  cudaStream_t handle_ = nullptr;
  int64_t works_ = 0;  // pieces of host code enqueued so far
  std::string last_what_;
};

}  // namespace trencadis
