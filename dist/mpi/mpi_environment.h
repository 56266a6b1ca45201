// MpiEnvironment: MPI's beginning and end, as one object that main owns.
//
// Every communicator must be destroyed before it. A program started without mpirun is a world of one rank.
// Threads: MPI is asked for MPI_THREAD_MULTIPLE, because collectives run on communication streams while the compute
// thread uses other communicators.
#pragma once

namespace trencadis {

class MpiEnvironment {
 public:
  // Throws Error when this MPI cannot be called from several threads at once.
  MpiEnvironment();
  ~MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;

  int rank() const;  // in the world
  int size() const;
  // Among the processes on the same computer: what a rank picks its GPU by. Collective.
  int local_rank() const;

  // Ends all ranks of the job at once: for a rank whose error the others cannot know of. Does not return.
  [[noreturn]] void abort(int exit_code);
};

}  // namespace trencadis
