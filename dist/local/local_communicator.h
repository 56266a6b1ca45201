// The communicator of a process that runs alone: it makes no call, moves nothing through any
// channel and counts nothing.
//
// Why it exists: with it, one process is the case W = 1 of everything in zero/, not a second code path. reduce_scatter
// becomes a copy or an addition, all_gather a copy, both in stream order; the rest does nothing.
#pragma once

#include "dist/communicator.h"

namespace trencadis {

// Delays of the options apply, so that tests can make even a copy late.
std::unique_ptr<Communicator> make_local_communicator(CommOptions options = {});

}  // namespace trencadis
