// The communicator of GPUs without NCCL: each collective passes through pinned host memory and a communicator of the
// host.
//
// Why: NCCL wants a GPU for each rank. With this, ranks under mpirun share one, and ZeRO on GPUs is tested with W > 1
// on a machine that has one GPU. It is for tests: the host waits for the stream at each collective, and nothing
// overlaps.
//
// In stream order: what the stream was given before the call comes before the collective, what it is given afterwards
// after it. Sums are the host communicator's: in rank order, onto what is there. So are the errors, and come out of the
// call. Memory: `staging_bytes` of pinned memory, whatever the sizes.
#pragma once

#include <memory>

#include "dist/communicator.h"

namespace trencadis {

// The context, whose device is current in the calling thread, outlives it.
std::unique_ptr<Communicator> make_staged_communicator(Context& context, std::unique_ptr<Communicator> host,
                                                       int64_t staging_bytes = 4 << 20);

}  // namespace trencadis
