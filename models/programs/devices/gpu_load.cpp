// The table is in libtrencadis_gpu.so beside the program, where that was built.
#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>

#include "models/programs/devices/gpu.h"

namespace trencadis {

GpuSupport* gpu_support(std::string& why) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path library = program.parent_path() / "libtrencadis_gpu.so";
  if (!std::filesystem::exists(library, error)) {
    why = fmt::format(
        "this build has no CUDA: there is no {}, which `cmake --build` makes where it finds nvcc, cuBLAS and NCCL",
        library.string());
    return nullptr;
  }
  // Never closed: what comes out of it lives as long as the program.
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const table = handle ? dlsym(handle, "trencadis_gpu_support") : nullptr;
  if (!table) {
    why = fmt::format("{} cannot be loaded: {}", library.string(), dlerror());
    return nullptr;
  }
  return reinterpret_cast<GpuSupport* (*)()>(table)();
}

bool gpu_in_sight() { return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0; }

}  // namespace trencadis
