// The communicator of processes under mpirun: collectives of our own, built of MPI's nonblocking messages.
//
// Why not MPI's collectives: their order of sums is MPI's business and changes with sizes and versions, a rank that
// calls something else hangs them, and MPI_Reduce_scatter_block was three times slower where it was measured (README).
//
// Each communicator is its own duplicate of the MPI one, so several may be used from several threads at once. Options
// must be the same on all ranks. When ranks have failed or an abort was requested, destroying a communicator does not
// talk to the others.
#pragma once

#include <functional>

#include "dist/communicator.h"

namespace trencadis {

// All ranks of the job. Collective, blocks the host; needs a live MpiEnvironment, which outlives the communicator.
// abort, if given, must outlive it too, and so must context. The staging buffers of reductions (up to 4 MiB, and those
// of split() and duplicate() again) are a Storage of the context, of category communication, taken once here; without a
// context they are plain memory that no tracker sees. size 1 has none.
std::unique_ptr<Communicator> make_mpi_world(CommOptions options = {}, const AbortFlag* abort = nullptr,
                                             Context* context = nullptr);

// Runs body(world) on this process, which is a rank of mpirun's job or a world of one, with an MpiEnvironment of its own:
// what a main() calls that does nothing else under MPI. An error that this rank alone has is said, and ends the job with
// exit code 1; one that all ranks have alike (Agreed) is thrown on.
void run_on_mpi(const std::function<void(Communicator& world)>& body, CommOptions options = {});

}  // namespace trencadis
