#include "runtime/cuda/backend.h"

#include <cstring>
#include <list>
#include <optional>
#include <utility>

#include "runtime/cuda/caching_pool.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/cudnn/sdpa.h"
#include "runtime/cuda/handles.h"
#include "runtime/cuda/staging.h"
#include "runtime/cuda/streams.h"

namespace trencadis {

namespace {

// Makes the device current for this thread.
int use_device(int device) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  CHECK(status == cudaSuccess && device >= 0 && device < count, "there is no cuda:{}: {} devices ({})", device, count,
        cudaGetErrorString(status));
  CUDA_CHECK(cudaSetDevice(device));
  return device;
}

// What the kernels of one stream need.
struct StreamResources {
  StreamResources(PoolGroup& pools, cudaStream_t stream, const CudaOptions& options,
                  const CachingPool::Options& pool_options)
      : products(stream, options.tf32), scratch(pools, stream, pool_options) {}
  CublasHandle products;
  CachingPool scratch;
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options) : options_(options), device_(use_device(options.device)) {
    CHECK(options.attention != AttentionChoice::cudnn || CudnnAttention::built(), "attention by cuDNN: {}",
          CudnnAttention::why_not_built());
  }

  Device device() const override { return {Device::Kind::cuda, device_}; }
  Allocator& allocator() override { return storage_; }
  Stream& compute_stream() override { return compute_; }
  std::unique_ptr<Stream> make_stream(std::string name) override {
    return std::make_unique<CudaStream>(std::move(name), events_);
  }

  Kernels& kernels() override {
    if (!kernels_) kernels_ = make_kernels(compute_);
    return *kernels_;
  }
  // What they need lives as long as the backend.
  std::unique_ptr<Kernels> make_kernels(Stream& stream) override {
    const cudaStream_t handle = CudaStream::of(stream).handle();
    StreamResources& resources = resources_.emplace_back(pools_, handle, options_, pool_options());
    return std::make_unique<CudaKernels>(handle, resources.products, resources.scratch, options_.attention);
  }

  void copy_from_host(View device, const void* host) override {
    for (int64_t done = 0; done < device.bytes();) {
      const Staging::Piece piece = staging_.take(device.bytes() - done);
      std::memcpy(piece.data, static_cast<const char*>(host) + done, static_cast<size_t>(piece.bytes));
      CUDA_CHECK(cudaMemcpyAsync(static_cast<char*>(device.data) + done, piece.data, static_cast<size_t>(piece.bytes),
                                 cudaMemcpyHostToDevice, compute_.handle()));
      staging_.in_use_until(compute_.record());
      done += piece.bytes;
    }
  }

  // While the device fills one piece, the host empties the one before.
  void copy_to_host(void* host, ConstView device) override {
    struct Arriving {
      Staging::Piece piece;
      char* to;
      Event event;
    };
    const auto arrive = [](Arriving& copy) {
      copy.event.wait_on_host();
      std::memcpy(copy.to, copy.piece.data, static_cast<size_t>(copy.piece.bytes));
    };
    std::optional<Arriving> before;
    for (int64_t done = 0; done < device.bytes();) {
      const Staging::Piece piece = staging_.take(device.bytes() - done);
      CUDA_CHECK(cudaMemcpyAsync(piece.data, static_cast<const char*>(device.data) + done,
                                 static_cast<size_t>(piece.bytes), cudaMemcpyDeviceToHost, compute_.handle()));
      const Event event = compute_.record();
      staging_.in_use_until(event);
      if (before) arrive(*before);
      before = Arriving{piece, static_cast<char*>(host) + done, event};
      done += piece.bytes;
    }
    if (before) arrive(*before);
  }

 private:
  CachingPool::Options pool_options() const { return {options_.poison, options_.exact_blocks}; }

  const CudaOptions options_;
  const int device_;  // first: what follows is made on it
  const std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>();
  PoolGroup pools_{{Device::Kind::cuda, device_}};
  Staging staging_{options_.staging_bytes};
  std::list<StreamResources> resources_;
  CudaStream compute_{"compute", events_};
  CachingPool storage_{pools_, compute_.handle(), pool_options()};
  std::unique_ptr<Kernels> kernels_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(CudaOptions options) { return std::make_unique<CudaBackend>(options); }

}  // namespace trencadis
