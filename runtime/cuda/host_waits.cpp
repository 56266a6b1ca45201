#include "runtime/cuda/host_waits.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "runtime/cuda/handles.h"

namespace trencadis {

void HostWaits::add(HostWatch& watch) {
  const std::lock_guard lock(mutex_);
  watches_.push_back(&watch);
}

void HostWaits::remove(HostWatch& watch) {
  const std::lock_guard lock(mutex_);
  std::erase(watches_, &watch);
}

std::vector<HostWatch*> HostWaits::watches() const {
  const std::lock_guard lock(mutex_);
  return watches_;
}

void HostWaits::until(const std::function<cudaError_t()>& query, const std::function<cudaError_t()>& block) const {
  using Clock = std::chrono::steady_clock;
  ++count_;
  const std::vector<HostWatch*> watches = this->watches();
  if (watches.empty()) {
    CUDA_CHECK(block());
    return;
  }
  const auto started = Clock::now();
  for (;;) {
    const cudaError_t status = query();
    if (status == cudaSuccess) return;
    CHECK(status == cudaErrorNotReady, "the device: {} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
    const double waited = std::chrono::duration<double>(Clock::now() - started).count();
    for (HostWatch* watch : watches) watch->check(waited);
    // The first millisecond costs a core; after that, a small part of the time waited is added to it.
    if (waited < 1e-3)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(waited / 50, 1e-3)));
  }
}

}  // namespace trencadis
