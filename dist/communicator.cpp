#include "dist/communicator.h"

namespace trencadis {

const char* name_of(CollectiveKind kind) {
  static constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier"};
  return names[static_cast<int>(kind)];
}

CommCounters& CommCounters::operator+=(const CommCounters& other) {
  for (int t = 0; t < kTrafficClasses; ++t)
    for (int k = 0; k < kCollectiveKinds; ++k) {
      count[t][k].calls += other.count[t][k].calls;
      count[t][k].elements_sent += other.count[t][k].elements_sent;
      count[t][k].bytes_sent += other.count[t][k].bytes_sent;
    }
  return *this;
}

CommCounters CommCounters::operator-(const CommCounters& earlier) const {
  CommCounters difference = *this;
  for (int t = 0; t < kTrafficClasses; ++t)
    for (int k = 0; k < kCollectiveKinds; ++k) {
      difference.count[t][k].calls -= earlier.count[t][k].calls;
      difference.count[t][k].elements_sent -= earlier.count[t][k].elements_sent;
      difference.count[t][k].bytes_sent -= earlier.count[t][k].bytes_sent;
    }
  return difference;
}

}  // namespace trencadis
