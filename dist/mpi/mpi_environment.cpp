#include "dist/mpi/mpi_environment.h"

#include <mpi.h>

#include <cstdlib>

#include "dist/mpi/requests.h"

namespace trencadis {

namespace {
const char* name_of_thread_level(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "MPI_THREAD_MULTIPLE";
  }
}
}  // namespace

MpiEnvironment::MpiEnvironment() {
  // Beside a process that was started alone Open MPI would start a daemon, which takes a tenth of a second and is needed
  // for nothing here. Under mpirun this says nothing.
  setenv("OMPI_MCA_ess_singleton_isolated", "1", /*overwrite=*/0);
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw Error(fmt::format(
        "this MPI offers only {}; collectives run beside the computation and need MPI_THREAD_MULTIPLE. Use an MPI "
        "built with thread support (Open MPI 4: --enable-mpi-thread-multiple is the default; Debian's libopenmpi-dev "
        "has it)",
        name_of_thread_level(provided)));
  }
}

MpiEnvironment::~MpiEnvironment() { MPI_Finalize(); }

int MpiEnvironment::rank() const {
  int rank = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  return rank;
}

int MpiEnvironment::size() const {
  int size = 1;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  return size;
}

int MpiEnvironment::local_rank() const {
  int world_rank = rank(), local = 0;
  MPI_Comm computer = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world_rank, MPI_INFO_NULL, &computer),
            "MPI_Comm_split_type");
  check_mpi(MPI_Comm_rank(computer, &local), "MPI_Comm_rank");
  check_mpi(MPI_Comm_free(&computer), "MPI_Comm_free");
  return local;
}

void MpiEnvironment::abort(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::abort();  // MPI_Abort does not return
}

}  // namespace trencadis
