#include "dist/ncclsim/launch_order.h"

#include <algorithm>

#include "runtime/check.h"

namespace trencadis::ncclsim {

std::string LaunchOrder::add(int device, std::span<const int> devices, int communicator, const std::string& what) {
  for (const int other : devices) {
    if (other == device) continue;
    Pair& pair = pairs_[{std::min(device, other), std::max(device, other)}];
    if (pair.calls.empty() || pair.ahead == device) {
      pair.ahead = device;
      pair.calls.push_back({communicator, what});
      continue;
    }
    const Call theirs = pair.calls.front();
    pair.calls.pop_front();
    if (theirs.communicator != communicator)
      return fmt::format(
          "device {} calls {} on communicator {} where device {} called {} on communicator {}: communicators of the "
          "same GPUs must be used in one order on all ranks",
          device, what, communicator, other, theirs.what, theirs.communicator);
  }
  return {};
}

void LaunchOrder::forget(std::span<const int> devices) {
  for (const int a : devices)
    for (const int b : devices)
      if (a < b) pairs_.erase({a, b});
}

}  // namespace trencadis::ncclsim
