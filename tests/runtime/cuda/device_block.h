// Device memory for tests: blocks between guard zones, poisoned; and CudaKernels on a stream whose scratch memory is
// made of them. On a GPU and in the simulator alike.
//
// Include it before doctest (see kernel_test.h): CUDA_CHECK uses the project's CHECK.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/handles.h"

namespace trencadis::test {

// bytes of device memory that start as 0xff (NaN in every floating type), `shift` bytes past a multiple of 256, behind
// a guard zone of the same bytes. Another one follows, unless `exact`: then the allocation ends with the block, and
// AddressSanitizer in the simulator's build sees a step over the edge, reading too.
class DeviceBlock {
 public:
  DeviceBlock(cudaStream_t stream, size_t bytes, size_t shift, bool exact)
      : stream_(stream), bytes_(bytes), front_(kGuard + shift), back_(exact ? 0 : kGuard) {
    void* base = nullptr;
    CUDA_CHECK(cudaMalloc(&base, front_ + bytes_ + back_));
    base_ = static_cast<char*>(base);
    CUDA_CHECK(cudaMemsetAsync(base_, 0xff, front_ + bytes_ + back_, stream_));
  }
  ~DeviceBlock() {
    cudaStreamSynchronize(stream_);
    cudaFree(base_);
  }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;

  char* data() const { return base_ + front_; }
  size_t bytes() const { return bytes_; }

  void write(const void* from) {
    if (bytes_ > 0) CUDA_CHECK(cudaMemcpyAsync(data(), from, bytes_, cudaMemcpyHostToDevice, stream_));
    CUDA_CHECK(cudaStreamSynchronize(stream_));
  }
  std::vector<char> read() const { return read(data(), bytes_); }

  // Whether what lies around the block is as it was.
  bool guards_hold() const {
    const auto is_guard = [](char c) { return c == static_cast<char>(0xff); };
    const std::vector<char> before = read(base_, front_), after = read(data() + bytes_, back_);
    return std::all_of(before.begin(), before.end(), is_guard) && std::all_of(after.begin(), after.end(), is_guard);
  }

 private:
  static constexpr size_t kGuard = 256;

  std::vector<char> read(const char* from, size_t bytes) const {
    std::vector<char> host(bytes);
    if (bytes > 0) CUDA_CHECK(cudaMemcpyAsync(host.data(), from, bytes, cudaMemcpyDeviceToHost, stream_));
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    return host;
  }

  cudaStream_t stream_;
  size_t bytes_, front_, back_;
  char* base_ = nullptr;
};

// Scratch memory. What is freed stays until the end, so that its guard zones can be looked at; `exact` as above.
class TestScratch final : public Allocator {
 public:
  TestScratch(cudaStream_t stream, bool exact) : stream_(stream), exact_(exact) {}
  void* allocate(int64_t bytes) override {
    blocks_.push_back(std::make_unique<DeviceBlock>(stream_, static_cast<size_t>(bytes), 0, exact_));
    return blocks_.back()->data();
  }
  void free(void*, int64_t) override {}
  bool guards_hold() const {
    return std::all_of(blocks_.begin(), blocks_.end(), [](const auto& block) { return block->guards_hold(); });
  }

 private:
  cudaStream_t stream_;
  bool exact_;
  std::vector<std::unique_ptr<DeviceBlock>> blocks_;
};

// A stream of its own.
class TestStream {
 public:
  TestStream() { CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~TestStream() { cudaStreamDestroy(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  cudaStream_t get() const { return stream_; }
  void synchronize() const { CUDA_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace trencadis::test
