// What ranks must settle before they train: who shares which cores, and when to end.
#pragma once

#include <string>

#include "dist/communicator.h"

namespace trencadis {

// How this rank may use the machine.
struct CoreShare {
  int threads = 1;      // compute threads: allowed cores / ranks that share them, at least 1
  std::string warning;  // on rank 0: cores that no rank may use, and the flag that frees them; else empty
};
CoreShare share_cores(Communicator& comm);

// SIGINT, SIGTERM and SIGUSR1 ask the run to end after the step; a second SIGINT or SIGTERM ends the process at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  static int received();  // the signal's number, 0: none
};

}  // namespace trencadis
