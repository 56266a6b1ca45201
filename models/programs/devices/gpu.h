// GPUs as the trainer sees them: a table of functions that is loaded when a GPU is used, and not before.
//
// Why loaded: NVIDIA's libraries take 160 MB of memory and a moment to open, which a run on the CPU should not pay.
// gpu_cuda.cpp implements the table; it stands in libtrencadis_gpu.so, which gpu_load.cpp opens for trencadis, or is
// linked into the program (gpu_linked.cpp: trencadis_cudasim, whose GPUs are simulated).
#pragma once

#include <memory>
#include <string>

#include "dist/communicator.h"
#include "runtime/context.h"

namespace trencadis {

struct GpuOptions {
  int device = 0;
  bool tf32 = false;
  std::string attention = "auto";  // auto, native, cudnn
};

class GpuSupport {
 public:
  virtual ~GpuSupport() = default;
  // Collective, once, before anything else: what processes must do together.
  virtual void start(Communicator& world) = 0;
  virtual int device_count() = 0;
  virtual std::string device_name(int device) = 0;
  virtual std::unique_ptr<Backend> make_backend(const GpuOptions& options) = 0;
  // The ranks of `host` as a communicator of the context's device memory. Collective. All must outlive it.
  virtual std::unique_ptr<Communicator> make_group(Context& context, Communicator& host, const CommOptions& options,
                                                   const AbortFlag* abort) = 0;
};

// The table; null where this program has none, and then `why` says so in a sentence.
GpuSupport* gpu_support(std::string& why);
// Whether this machine seems to have a GPU: looked up without loading anything.
bool gpu_in_sight();

}  // namespace trencadis
