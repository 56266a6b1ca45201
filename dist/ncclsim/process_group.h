// Ranks as processes of one host. Each process simulates its device; the memory of all devices is one mapping that all
// processes share, so that a collective is the same piece of code as for threads: one process performs it for all.
//
// A collective is one operation of each process's executor, which waits inside for the others: so every process must
// run its operations as they come (schedule eager), and a rank that never comes is found after TRENCADIS_SIM_PATIENCE
// seconds (60). A call that differs, or a communicator used in another order, ends the job with a message at once.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "dist/communicator.h"
#include "dist/ncclsim/group.h"

namespace trencadis::ncclsim {

// Collective, once per process, before anything else of CUDA: the device memory of the world's ranks becomes one shared
// mapping, bytes_per_rank each (address space: memory is used as it is written), and the schedule becomes eager.
void share_device_memory(Communicator& world, size_t bytes_per_rank = size_t{4} << 30);

// The group of that id, when this process shares its device memory; else null.
std::shared_ptr<Group> join_process_group(const ncclUniqueId& id, int ranks, int rank, int device);

// A name that no other process and no other number gives.
std::string unique_name(int number);

}  // namespace trencadis::ncclsim
