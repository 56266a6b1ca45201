// Times the rungs of the kernel ladders (runtime/cuda/ladder) on the first GPU and prints them as JSON, for
// cuda_ladder.py. Each rung is run once to warm up, then the best of several timed runs counts.
//
//   cuda_ladder           measures; exit code 77 where there is no GPU
//   cuda_ladder --list    the same rows without times, anywhere
//
// Products are compared to cuBLAS in the same type, attention to cuDNN in bf16 where that is built in, else to cuBLAS's
// products, layer norm's backward to a copy of the bytes that it has to move.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/cudnn/sdpa.h"
#include "runtime/cuda/handles.h"
#include "runtime/cuda/ladder/attention.h"
#include "runtime/cuda/ladder/layer_norm_backward.h"
#include "runtime/cuda/ladder/matmul.h"

namespace trencadis {
namespace {

constexpr int64_t kProduct = 4096;                                                 // M = N = K
constexpr int64_t kB = 4, kT = 2048, kH = 16, kD = 64;                             // attention
constexpr int64_t kN = 16384, kC = 1024;                                           // layer norm
constexpr double kProductWork = 2.0 * kProduct * kProduct * kProduct;              // operations
constexpr double kAttentionWork = 2.0 * 2.0 * kB * kH * kD * kT * (kT + 1) / 2.0;  // causal: half of the scores

// Device memory, and scratch memory for kernels. What was freed is kept and given again, as all work is in one stream: a
// call of cudaMalloc would be timed with the kernel. Without a device (--list), null.
class DeviceMemory final : public Allocator {
 public:
  explicit DeviceMemory(bool device) : device_(device) {}
  ~DeviceMemory() {
    for (const auto& [bytes, data] : free_) cudaFree(data);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* allocate(int64_t bytes) override {
    if (const auto kept = free_.find(bytes); kept != free_.end()) return free_.extract(kept).mapped();
    void* data = nullptr;
    if (device_) CUDA_CHECK(cudaMalloc(&data, static_cast<size_t>(bytes)));
    return data;
  }
  void free(void* data, int64_t bytes) override {
    if (data) free_.emplace(bytes, data);
  }

  // n elements of small numbers.
  View make(DType type, int64_t n) {
    const View view(allocate(n * size_of(type)), type, n);
    if (device_) CUDA_CHECK(cudaMemset(view.data, 0x3c, static_cast<size_t>(view.bytes())));  // 0.0115, in bf16 too
    return view;
  }

 private:
  bool device_;
  std::multimap<int64_t, void*> free_;
};

class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    CUDA_CHECK(cudaEventCreate(&begin_));
    CUDA_CHECK(cudaEventCreate(&end_));
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  double best_milliseconds(const std::function<void()>& work) {
    work();
    float best = 1e30f;
    for (int run = 0; run < 7; ++run) {
      CUDA_CHECK(cudaEventRecord(begin_, stream_));
      work();
      CUDA_CHECK(cudaEventRecord(end_, stream_));
      CUDA_CHECK(cudaEventSynchronize(end_));
      float now = 0;
      CUDA_CHECK(cudaEventElapsedTime(&now, begin_, end_));
      best = std::min(best, now);
    }
    return static_cast<double>(best);
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// The rows of the table. Without a stopwatch, `work` is not called.
class Table {
 public:
  explicit Table(Stopwatch* stopwatch) : stopwatch_(stopwatch) {}

  // amount: of operations or bytes; a row of `reference` is what the others of its group and type are compared to.
  void row(const std::string& group, const std::string& rung, DType type, double amount, const char* unit,
           bool reference, const std::function<void()>& work) {
    std::string time = "null", rate = "null";
    if (stopwatch_) {
      const double ms = stopwatch_->best_milliseconds(work);
      time = fmt::format("{:.4f}", ms);
      rate = fmt::format("{:.4f}", amount / ms * 1e3);
    }
    rows_.push_back(fmt::format(
        R"({{"group": "{}", "rung": "{}", "type": "{}", "ms": {}, "rate": {}, "unit": "{}", "reference": {}}})", group,
        rung, name_of(type), time, rate, unit, reference));
  }
  void print(const std::string& device) const {
    fmt::print("{{\"device\": \"{}\", \"rows\": [\n  {}\n]}}\n", device, fmt::join(rows_, ",\n  "));
  }

 private:
  Stopwatch* stopwatch_;
  std::vector<std::string> rows_;
};

void products(Table& table, DeviceMemory& memory, cudaStream_t stream, Kernels* kernels) {
  for (DType type : {DType::f32, DType::bf16}) {
    const int64_t n = kProduct;
    const View a = memory.make(type, n * n), b = memory.make(type, n * n), c = memory.make(type, n * n);
    const auto rung = [&](const char* name, Matmul* matmul) {
      table.row("product", name, type, kProductWork, "op/s", false, [&] { matmul(stream, c, a, b, n, n, n); });
    };
    rung("naive", matmul_naive);
    rung("tiled", matmul_tiled);
    rung("fast", matmul_fast);
    if (type == DType::bf16) rung("tensor_core", matmul_tensor_core);
    table.row("product", "cuBLAS", type, kProductWork, "op/s", true,
              [&] { kernels->matmul(c, a, b, n, n, n, false, true, false); });
    for (const View& view : {a, b, c}) memory.free(view.data, view.bytes());
  }
}

// Attention is two products and a softmax between them; backward is five products (the native kernels make seven).
// cudnn is Kernels that insist on cuDNN; they are used where it is built in.
void attention(Table& table, DeviceMemory& memory, cudaStream_t stream, Kernels* native, Kernels* cudnn) {
  const AttentionShape s{.B = kB,
                         .T = kT,
                         .H = kH,
                         .H_kv = kH,
                         .D = kD,
                         .q_stride = kH * kD,
                         .k_stride = kH * kD,
                         .v_stride = kH * kD,
                         .o_stride = kH * kD,
                         .scale = 0.125f,
                         .dropout = {}};
  for (DType type : {DType::f32, DType::bf16}) {
    const int64_t n = kB * kT * kH * kD;
    const View q = memory.make(type, n), k = memory.make(type, n), v = memory.make(type, n), o = memory.make(type, n);
    const View lse = memory.make(DType::f32, kB * kH * kT);
    const auto rung = [&](const char* name, Attention* call) {
      table.row("attention", name, type, kAttentionWork, "op/s", false,
                [&] { call(stream, memory, o, lse, q, k, v, s); });
    };
    rung("naive", attention_naive);
    rung("tiled", attention_tiled);
    rung("fast", attention_fast);
    if (type == DType::bf16) rung("tensor_core", attention_tensor_core);
    const bool by_cudnn = type == DType::bf16 && CudnnAttention::built();
    if (by_cudnn)
      table.row("attention", "cuDNN", type, kAttentionWork, "op/s", true,
                [&] { cudnn->attention(o, lse, q, k, v, s); });

    const View dq = memory.make(type, n), dk = memory.make(type, n), dv = memory.make(type, n);
    const View d_o = memory.make(type, n);
    const auto backward = [&](const char* name, Kernels* kernels, bool reference) {
      table.row("attention backward", name, type, 2.5 * kAttentionWork, "op/s", reference,
                [&, kernels] { kernels->attention_backward(dq, dk, dv, d_o, o, lse, q, k, v, s); });
    };
    backward("fast", native, false);
    if (by_cudnn) backward("cuDNN", cudnn, true);
    for (const View& view : {dq, dk, dv, d_o}) memory.free(view.data, view.bytes());
    for (const View& view : {q, k, v, o, lse}) memory.free(view.data, view.bytes());
  }
}

// dy and x are read and dx is written: a copy of 1.5 arrays moves as much.
void layer_norm(Table& table, DeviceMemory& memory, cudaStream_t stream) {
  for (DType type : {DType::f32, DType::bf16}) {
    const View dx = memory.make(type, kN * kC), dy = memory.make(type, kN * kC), x = memory.make(type, kN * kC);
    const View dgamma = memory.make(type, kC), dbeta = memory.make(type, kC), gamma = memory.make(type, kC);
    const View mean = memory.make(DType::f32, kN), rstd = memory.make(DType::f32, kN);
    const LayerNormBackward call{.dx = dx,
                                 .dgamma = dgamma,
                                 .dbeta = dbeta,
                                 .dy = dy,
                                 .x = x,
                                 .mean = mean,
                                 .rstd = rstd,
                                 .gamma = gamma,
                                 .dresidual = {},
                                 .N = kN,
                                 .C = kC};
    const double bytes = 3.0 * static_cast<double>(dx.bytes());
    const auto rung = [&](const char* name, void (*backward)(cudaStream_t, Allocator&, const LayerNormBackward&)) {
      table.row("layer norm backward", name, type, bytes, "B/s", false, [&] { backward(stream, memory, call); });
    };
    rung("naive", layer_norm_backward_naive);
    rung("tiled", layer_norm_backward_tiled);
    rung("fast", layer_norm_backward_fast);
    table.row("layer norm backward", "copy", type, 2.0 * static_cast<double>(dx.bytes()), "B/s", true, [&] {
      CUDA_CHECK(cudaMemcpyAsync(dx.data, dy.data, static_cast<size_t>(dx.bytes()), cudaMemcpyDeviceToDevice, stream));
    });
    for (const View& view : {dx, dy, x, dgamma, dbeta, gamma, mean, rstd}) memory.free(view.data, view.bytes());
  }
}

void run(const std::string& device, bool measure) {
  DeviceMemory memory(measure);
  std::unique_ptr<Stopwatch> stopwatch;
  std::unique_ptr<CublasHandle> blas;
  std::unique_ptr<Kernels> kernels, cudnn;
  cudaStream_t stream = nullptr;  // the legacy stream will do
  if (measure) {
    stopwatch = std::make_unique<Stopwatch>(stream);
    blas = std::make_unique<CublasHandle>(stream, false);
    kernels = std::make_unique<CudaKernels>(stream, *blas, memory);
    cudnn = std::make_unique<CudaKernels>(stream, *blas, memory, AttentionChoice::cudnn);
  }
  Table table(stopwatch.get());
  products(table, memory, stream, kernels.get());
  attention(table, memory, stream, kernels.get(), cudnn.get());
  layer_norm(table, memory, stream);
  table.print(device);
}

}  // namespace
}  // namespace trencadis

int main(int argc, char** argv) {
  try {
    if (argc == 2 && std::string(argv[1]) == "--list") {
      trencadis::run("", false);
      return 0;
    }
    int devices = 0;
    const cudaError_t status = cudaGetDeviceCount(&devices);
    if (status != cudaSuccess || devices == 0) {
      fmt::print(stderr, "no GPU: {}\n", status == cudaSuccess ? "none is visible" : cudaGetErrorString(status));
      return 77;
    }
    cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    trencadis::run(properties.name, true);
    return 0;
  } catch (const trencadis::Error& error) {
    fmt::print(stderr, "cuda_ladder: {}\n", error.what());
    return 1;
  }
}
