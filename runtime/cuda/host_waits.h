// Who looks after the host while it waits for the device.
//
// A blocking call of CUDA does not return when the device waits for a rank that has died. So whoever puts such work on
// streams (dist/nccl) registers a HostWatch: from then on the host asks the device again and again instead of blocking,
// and the watch between two questions. With no watch the host blocks.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

namespace trencadis {

class HostWatch {
 public:
  virtual ~HostWatch() = default;
  // The host has waited for so long. Throws to end the wait.
  virtual void check(double waited_seconds) = 0;
};

// Of one backend: shared by its streams and events. Watches are added and removed by the thread that waits.
class HostWaits {
 public:
  void add(HostWatch& watch);
  void remove(HostWatch& watch);

  // Returns when query() is cudaSuccess. block() does the same in one call, for when nobody watches. Throws Error for
  // another status, and what a watch throws.
  void until(const std::function<cudaError_t()>& query, const std::function<cudaError_t()>& block) const;
  // How often the host has waited, or would have if the device had not been done already: each call of until(). The
  // promise that a training step waits once is counted here.
  int64_t count() const { return count_; }

 private:
  std::vector<HostWatch*> watches() const;

  mutable std::mutex mutex_;
  mutable std::atomic<int64_t> count_ = 0;
  std::vector<HostWatch*> watches_;
};

}  // namespace trencadis
