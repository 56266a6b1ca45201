// The order in which ranks use several communicators.
//
// Two collectives on two communicators of the same GPUs may both wait for the other to leave the GPU: rank 0 has begun
// the first and rank 1 the second. NCCL orders launches by the order of the host's calls (NCCL_LAUNCH_ORDER_IMPLICIT),
// which helps only if every rank's host makes its calls in one and the same order. This is what is checked here: for
// every two GPUs, the calls on communicators that hold both of them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>

namespace trencadis::ncclsim {

class LaunchOrder {
 public:
  // A call of this device on a communicator of these devices; `what` is shown. Returns what is wrong, or "".
  std::string add(int device, std::span<const int> devices, int communicator, const std::string& what);
  void forget(std::span<const int> devices);  // the group of ranks has ended

 private:
  struct Call {
    int communicator;
    std::string what;
  };
  // Calls that one device of the pair has made and the other has not yet.
  struct Pair {
    int ahead = 0;
    std::deque<Call> calls;
  };
  std::map<std::pair<int, int>, Pair> pairs_;
};

}  // namespace trencadis::ncclsim
