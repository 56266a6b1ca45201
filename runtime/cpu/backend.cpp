#include "runtime/cpu/backend.h"

#include <cstring>

#include "runtime/cpu/arena.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/stream_kernels.h"
#include "runtime/host_streams.h"

namespace trencadis {

namespace {

// The compute stream's kernels use all threads of the pool. Those of another stream run on that stream's own thread,
// beside the compute, and may not take the pool from it.
class SingleThreadKernels {
 public:
  Kernels& kernels() { return kernels_; }

 private:
  ThreadPool pool_{1};
  CpuKernels kernels_{pool_};
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options) : arena_(options), pool_(options.threads) {}

  Device device() const override { return {Device::Kind::cpu, 0}; }
  Allocator& allocator() override { return arena_; }
  Stream& compute_stream() override { return compute_; }
  std::unique_ptr<Stream> make_stream(std::string name) override {
    return std::make_unique<WorkerStream>(std::move(name), tracer_);
  }
  Kernels& kernels() override { return kernels_; }
  std::unique_ptr<Kernels> make_kernels(Stream& stream) override {
    if (&stream == &compute_) return make_stream_kernels(stream, std::make_shared<CpuKernels>(pool_));
    auto owner = std::make_shared<SingleThreadKernels>();
    return make_stream_kernels(stream, std::shared_ptr<Kernels>(owner, &owner->kernels()));
  }

  // Device memory is host memory, and the compute stream has done all its work.
  void copy_to_host(void* host, ConstView device) override {
    if (device.bytes()) std::memcpy(host, device.data, static_cast<size_t>(device.bytes()));
  }
  void copy_from_host(View device, const void* host) override {
    if (device.bytes()) std::memcpy(device.data, host, static_cast<size_t>(device.bytes()));
  }

  void trace_with(Tracer& tracer) override {
    tracer_ = &tracer;
    compute_.trace_with(tracer);
  }

 private:
  Tracer* tracer_ = nullptr;
  ArenaAllocator arena_;
  ThreadPool pool_;
  CpuKernels kernels_{pool_};
  InlineStream compute_{"compute"};
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(CpuOptions options) {
  CHECK(options.threads >= 1, "CpuOptions::threads is {}; give at least 1", options.threads);
  return std::make_unique<CpuBackend>(options);
}

}  // namespace trencadis
