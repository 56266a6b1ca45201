// What ranks must settle before they train: who shares which cores, and that all were told the same.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dist/communicator.h"

namespace trencadis {

// What follows is about host memory: `comm` is a communicator that carries it (any but those of GPUs).

// Every rank's words, one row of own.size() words a rank. Collective; counted as other traffic.
std::vector<int64_t> exchange_words(Communicator& comm, const std::vector<int64_t>& own, const char* what);

// Every rank's text, by rank. Collective; counted as other traffic.
std::vector<std::string> exchange_texts(Communicator& comm, const std::string& own);

// Mixed into an error that every rank throws alike: one of them reports it, and no rank need be told by ending its job.
struct AgreedMark {
  virtual ~AgreedMark() = default;
};
template <typename E>
struct Agreed final : E, AgreedMark {
  using E::E;
};

// Work that each rank does on its own and that may fail on some of them (reading flags, opening files): either all go
// on, or all throw the same Agreed error, which names the ranks. Collective.
void on_all_ranks(Communicator& comm, const std::function<void()>& work);

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
