// Ranks that act as one: they exchange words and texts of the host, and work that may fail on some of them fails on all.
//
// Why: a rank that throws alone leaves the others waiting in the next collective. What may fail (flags, files) therefore
// runs inside on_all_ranks(), after which either all ranks go on, or all throw the same error.
//
// All of it is about host memory: `comm` is a communicator that carries it (any but those of GPUs). Everything here is
// collective and counted as other traffic.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dist/communicator.h"

namespace trencadis {

// Every rank's words, one row of own.size() words a rank.
std::vector<int64_t> exchange_words(Communicator& comm, const std::vector<int64_t>& own, const char* what);

// Every rank's text, by rank.
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

}  // namespace trencadis
