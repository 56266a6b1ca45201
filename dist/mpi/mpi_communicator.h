// The communicator of processes under mpirun: collectives of our own, built of MPI's nonblocking messages.
//
// Why not MPI's collectives: their order of sums is MPI's business and changes with sizes and versions, a rank that
// calls something else hangs them, and MPI_Reduce_scatter_block was three times slower where it was measured (README).
//
// Each communicator is its own duplicate of the MPI one, so several may be used from several threads at once. Options
// must be the same on all ranks. When ranks have failed or an abort was requested, destroying a communicator does not
// talk to the others.
#pragma once

#include "dist/communicator.h"

namespace trencadis {

// All ranks of the job. Collective, blocks the host; needs a live MpiEnvironment, which outlives the communicator.
// abort, if given, must outlive it too, and so must context. The staging buffers of reductions (up to 4 MiB, and those
// of split() and duplicate() again) are a Storage of the context, of category communication, taken once here; without a
// context they are plain memory that no tracker sees. size 1 has none.
std::unique_ptr<Communicator> make_mpi_world(CommOptions options = {}, const AbortFlag* abort = nullptr,
                                             Context* context = nullptr);

}  // namespace trencadis
