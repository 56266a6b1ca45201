#include "runtime/context.h"

#include <cstdio>
#include <cstdlib>

namespace trencadis {

// A destructor cannot throw, and going on would free memory through a dangling reference.
Context::~Context() {
  const BytesByCategory live = memory_.live();
  for (int c = 0; c < kMemoryCategories; ++c) {
    if (live[static_cast<size_t>(c)] == 0) continue;
    std::fprintf(stderr,
                 "a Context is destroyed while %lld bytes of category %s are alive; declare it before what uses it\n",
                 static_cast<long long>(live[static_cast<size_t>(c)]), name_of(static_cast<MemoryCategory>(c)));
    std::abort();
  }
}

}  // namespace trencadis
