// Requests: nonblocking MPI messages on their way, and Backoff: how to wait for them without burning a core.
//
// Why not MPI_Wait: it spins, deaf to the abort flag and the timeout, and on a machine with few cores it takes the time
// of the computation that it should overlap with.
// Invariant: a Requests that is destroyed early cancels what it can; the buffers of transfers that had begun must stay
// alive, which holds because the communicator has failed by then and the job is about to end.
#pragma once

#include <mpi.h>

#include <chrono>
#include <vector>

#include "runtime/check.h"

namespace trencadis {

// Throws Error with MPI's own text unless rc is MPI_SUCCESS; call is the function's name.
void check_mpi(int rc, const char* call);

class Requests {
 public:
  Requests() = default;
  ~Requests();
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  // The place for the next request, of a message to or from peer: MPI_Isend(..., requests.add(peer)).
  MPI_Request* add(int peer);
  bool empty() const { return requests_.empty(); }
  // Drives MPI and forgets what has completed; true when something has.
  bool test();
  // Who the rest is to or from, ascending, each once.
  std::vector<int> peers() const;

 private:
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;  // of requests_[i]
  std::vector<int> done_;   // MPI_Testsome's output; kept to save its allocation
};

// pause() between polls: at first not at all, then yielding the core, then sleeping a small part of the time waited.
class Backoff {
 public:
  using Clock = std::chrono::steady_clock;
  void pause();
  void reset() { *this = {}; }
  Clock::time_point start() const { return start_; }  // of this wait: construction or the last reset

 private:
  Clock::time_point start_ = Clock::now();
  int polls_ = 0;
};

}  // namespace trencadis
