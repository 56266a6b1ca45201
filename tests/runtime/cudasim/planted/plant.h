// Planted bugs: small CUDA programs that come in two forms, right and broken by one mistake that people make. The right
// form must pass in every build and order; the broken one must be caught by the builds that bugs.json names, with the words
// that it gives there. This keeps the checker honest.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <type_traits>
#include <vector>

#include "runtime/check.h"

namespace trencadis::planted {

struct Bug {
  std::string name;
  bool (*run)(bool broken);  // whether the result is right
};
std::vector<Bug> sync_bugs();    // sync.cu
std::vector<Bug> warp_bugs();    // warp.cu
std::vector<Bug> memory_bugs();  // memory.cu
std::vector<Bug> race_bugs();    // races.cu
std::vector<Bug> launch_bugs();  // launches.cu

// An array on the device, full of NaN (0xff) unless it is given values.
template <typename T>
class Global {
 public:
  explicit Global(size_t n) : n_(n) {
    CHECK(cudaMalloc(reinterpret_cast<void**>(&data_), n * sizeof(T)) == cudaSuccess, "cudaMalloc of {} elements", n);
  }
  explicit Global(const std::vector<T>& values) : Global(values.size()) {
    cudaMemcpy(data_, values.data(), n_ * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~Global() { cudaFree(data_); }
  Global(const Global&) = delete;
  Global& operator=(const Global&) = delete;

  T* data() { return data_; }
  std::vector<T> get() const {  // waits for the kernels
    std::vector<T> values(n_);
    cudaMemcpy(values.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t n_;
};

// 0, 1, 2, ...
inline std::vector<float> numbers(size_t n) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i);
  return x;
}

template <typename... Parameters>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t dynamic_shared,
            std::type_identity_t<Parameters>... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = dynamic_shared;
  cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace trencadis::planted
