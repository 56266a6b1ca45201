// Ranks as threads of one process: the collectives of a whole group in one debugger, one sanitizer, one test.
//
// Each rank's thread takes its own communicator out of the vector and uses it with its own streams; ranks share nothing
// else. A rank that fails, or destroys its communicator while others wait for it, makes their collective fail as well.
// Ranks read each other's buffers directly, but count elements as if they had sent them, exactly as dist/mpi does.
#pragma once

#include <functional>
#include <vector>

#include "dist/communicator.h"

namespace trencadis {

// Element r is rank r's. One abort flag may stand for all ranks; it must outlive the communicators.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size, CommOptions options = {},
                                                                     const AbortFlag* abort = nullptr);

// Runs body(world) on `ranks` threads, each with its communicator, and returns when all have. Where ranks threw: throws
// what the first of them threw; ranks that waited for it have then failed as well.
void run_on_threads(int ranks, const std::function<void(Communicator& world)>& body, CommOptions options = {});

}  // namespace trencadis
