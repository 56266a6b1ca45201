#include "dist/communicator.h"

namespace trencadis {

const char* name_of(CollectiveKind kind) {
  static constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier"};
  return names[static_cast<int>(kind)];
}

}  // namespace trencadis
