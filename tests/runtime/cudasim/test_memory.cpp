// Memory of the simulated device: poison, capacity, and what copies promise about the host's memory.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "runtime/cudasim/device_memory.h"
#include "sim_test.h"

using namespace trencadis;
using namespace trencadis::cudasim;
using namespace trencadis::test;

namespace {

struct Fixture {
  Fixture() {
    set_schedule({Schedule::Policy::lazy});
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ok(cudaMalloc(reinterpret_cast<void**>(&device), sizeof host));
  }
  ~Fixture() {
    cudaFree(device);
    cudaStreamDestroy(stream);
  }
  cudaStream_t stream = nullptr;
  float* device = nullptr;
  float host[4] = {1, 2, 3, 4};
};

}  // namespace

TEST_CASE("device and pinned memory arrive as NaN, also when they are used again") {
  for (int round = 0; round < 2; ++round) {
    Fixture f;
    ok(cudaMemcpyAsync(f.host, f.device, sizeof f.host, cudaMemcpyDeviceToHost, f.stream));
    for (float x : f.host) CHECK(std::isnan(x));
    ok(cudaMemsetAsync(f.device, 0, sizeof f.host, f.stream));
    ok(cudaMemcpyAsync(f.host, f.device, sizeof f.host, cudaMemcpyDeviceToHost, f.stream));
    for (float x : f.host) CHECK(x == 0);
    float* pinned = nullptr;
    ok(cudaMallocHost(reinterpret_cast<void**>(&pinned), 4));
    CHECK(std::isnan(*pinned));
    ok(cudaFreeHost(pinned));
  }
}

TEST_CASE("a copy from pageable memory has taken it when it returns") {
  Fixture f;
  float* pinned = nullptr;
  ok(cudaMallocHost(reinterpret_cast<void**>(&pinned), sizeof f.host));
  ok(cudaMemcpyAsync(f.device, f.host, sizeof f.host, cudaMemcpyHostToDevice, f.stream));
  f.host[0] = 9;
  ok(cudaMemcpyAsync(pinned, f.device, sizeof f.host, cudaMemcpyDeviceToHost, f.stream));
  ok(cudaStreamSynchronize(f.stream));
  CHECK(pinned[0] == 1);
  pinned[0] = 7;
  ok(cudaMemcpyAsync(f.device, pinned, sizeof f.host, cudaMemcpyHostToDevice, f.stream));
  ok(cudaMemcpyAsync(f.host, f.device, sizeof f.host, cudaMemcpyDeviceToHost, f.stream));
  CHECK(f.host[0] == 7);
  ok(cudaFreeHost(pinned));
}

TEST_CASE("the synchronous copy has both ends done when it returns") {
  Fixture f;
  ok(cudaMemcpy(f.device, f.host, sizeof f.host, cudaMemcpyHostToDevice));
  std::memset(f.host, 0, sizeof f.host);
  ok(cudaMemcpy(f.host, f.device, sizeof f.host, cudaMemcpyDeviceToHost));
  CHECK(f.host[3] == 4);
}

TEST_CASE("more memory than there is: an error that is remembered once") {
  set_device_memory(1 << 20);
  void *first = nullptr, *second = nullptr;
  ok(cudaMalloc(&first, 600 << 10));
  CHECK(cudaMalloc(&second, 600 << 10) == cudaErrorMemoryAllocation);
  CHECK(second == nullptr);
  CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaSuccess);
  size_t free = 0, total = 0;
  ok(cudaMemGetInfo(&free, &total));
  CHECK(total == 1 << 20);
  CHECK(free == (1 << 20) - (600 << 10));
  ok(cudaFree(first));
  ok(cudaMalloc(&second, 1 << 20));
  ok(cudaFree(second));
  CHECK(cudaFree(second) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  set_device_memory(size_t{4} << 30);
}

TEST_CASE("freed blocks merge: what was freed in pieces can be had in one") {
  std::vector<void*> blocks(64);
  set_device_memory(64 << 10);
  for (int round = 0; round < 3; ++round) {
    for (void*& block : blocks) ok(cudaMalloc(&block, 1 << 10));
    for (size_t i = 0; i < blocks.size(); ++i) ok(cudaFree(blocks[i * 37 % 64]));
    void* whole = nullptr;
    ok(cudaMalloc(&whole, 64 << 10));
    ok(cudaFree(whole));
  }
  set_device_memory(size_t{4} << 30);
}

TEST_CASE("the time between two events is that of the work between them") {
  Fixture f;
  cudaEvent_t from = nullptr, to = nullptr;
  ok(cudaEventCreate(&from));
  ok(cudaEventCreate(&to));
  float milliseconds = 0;
  CHECK(cudaEventElapsedTime(&milliseconds, from, to) == cudaErrorInvalidResourceHandle);
  ok(cudaMemsetAsync(f.device, 0, 4, f.stream));
  ok(cudaEventRecord(from, f.stream));
  enqueue(f.stream, "slow", [] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    while (std::chrono::steady_clock::now() < until) {
    }
  });
  ok(cudaEventRecord(to, f.stream));
  CHECK(cudaEventElapsedTime(&milliseconds, from, to) == cudaErrorNotReady);
  ok(cudaStreamSynchronize(f.stream));
  ok(cudaEventElapsedTime(&milliseconds, from, to));
  CHECK(milliseconds >= 20);
  ok(cudaEventDestroy(from));
  ok(cudaEventDestroy(to));
  cudaGetLastError();
}

TEST_CASE("a device that does not exist is refused") {
  CHECK(cudaSetDevice(device_count()) == cudaErrorInvalidDevice);
  CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  int device = -1;
  ok(cudaGetDevice(&device));
  CHECK(device == 0);
}
