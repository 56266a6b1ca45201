// Context: everything that belongs to one rank on one device: allocator, memory tracker, tracer, kernels, streams.
//
// It is passed along, never looked up in a global: two ranks that run as threads of one process have two contexts and
// share nothing. What a device offers stands in Backend; runtime/cpu implements it, a GPU build adds another.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/kernels.h"
#include "runtime/memory_tracker.h"
#include "runtime/stream.h"
#include "runtime/trace.h"

namespace trencadis {

// What a device must bring. All members live as long as the backend.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device device() const = 0;
  virtual Allocator& allocator() = 0;
  virtual Stream& compute_stream() = 0;
  virtual std::unique_ptr<Stream> make_stream(std::string name) = 0;
  // Kernels that run on the compute stream, and on another stream of this backend.
  virtual Kernels& kernels() = 0;
  virtual std::unique_ptr<Kernels> make_kernels(Stream& stream) = 0;
  // Ordered on the compute stream; both return when the host memory may be used again.
  virtual void copy_to_host(void* host, ConstView device) = 0;
  virtual void copy_from_host(View device, const void* host) = 0;
  // Called once, before anything runs: the streams that exist and those to come record into this tracer.
  virtual void trace_with(Tracer&) {}
};

class Context {
 public:
  explicit Context(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) { backend_->trace_with(tracer_); }
  // Storages refer to their context: one that outlives it ends the program, with a message that names the remedy.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device device() const { return backend_->device(); }
  Allocator& allocator() { return backend_->allocator(); }
  MemoryTracker& memory() { return memory_; }
  Tracer& tracer() { return tracer_; }
  Kernels& kernels() { return backend_->kernels(); }
  Stream& compute_stream() { return backend_->compute_stream(); }
  std::unique_ptr<Stream> make_stream(std::string name) { return backend_->make_stream(std::move(name)); }
  std::unique_ptr<Kernels> make_kernels(Stream& stream) { return backend_->make_kernels(stream); }
  void copy_to_host(void* host, ConstView device) { backend_->copy_to_host(host, device); }
  void copy_from_host(View device, const void* host) { backend_->copy_from_host(device, host); }
  Backend& backend() { return *backend_; }

 private:
  MemoryTracker memory_;  // outlives the backend: freeing is counted
  Tracer tracer_;         // and streams record until they end
  std::unique_ptr<Backend> backend_;
};

}  // namespace trencadis
