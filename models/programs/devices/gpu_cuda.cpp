// GPUs through CUDA and NCCL (or through what simulates them).
#include "dist/nccl/nccl_communicator.h"
#include "models/programs/devices/gpu.h"
#include "models/programs/devices/gpu_start.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/device_info.h"

namespace trencadis {

namespace {

class CudaSupport final : public GpuSupport {
 public:
  void start(Communicator& world) override { start_gpus(world); }
  int device_count() override { return cuda_device_count(); }
  std::string device_name(int device) override { return cuda_device_name(device); }
  std::unique_ptr<Backend> make_backend(const GpuOptions& options) override {
    CudaOptions cuda;
    cuda.device = options.device;
    cuda.tf32 = options.tf32;
    cuda.attention = options.attention == "native"  ? AttentionChoice::native
                     : options.attention == "cudnn" ? AttentionChoice::cudnn
                                                    : AttentionChoice::automatic;
    return make_cuda_backend(cuda);
  }
  std::unique_ptr<Communicator> make_group(Context& context, Communicator& host, const CommOptions& options,
                                           const AbortFlag* abort) override {
    NcclOptions nccl;
    nccl.comm = options;
    return make_nccl_communicator(context, host, nccl, abort);
  }
};

}  // namespace

extern "C" GpuSupport* trencadis_gpu_support() {
  static CudaSupport support;
  return &support;
}

}  // namespace trencadis
