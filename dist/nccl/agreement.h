// Agreement: what ranks tell each other about their calls of NCCL, while NCCL works.
//
// NCCL compares nothing: ranks that call different things hang, or give each other the wrong layer's numbers. Comparing
// before each call, as dist/mpi does, would make the host wait for the slowest rank each time, and the point of streams
// is that it does not. So the host only writes down its calls, and a thread beside it compares notes with the other
// ranks' threads over a communicator of the host. When calls differ, or a rank fails, leaves or asks to stop, all ranks
// know within a moment, and whoever waits for the device is told (NcclCommunicator::check).
//
// The ranks write all communicators of one group of ranks into one list. So the order across communicators is compared
// as well, which NCCL needs to be the same on all ranks.
//
// What the ranks must know before they enter NCCL (its id, who has which GPU) travels the same way, by exchange(). A
// collective of the host would not do: it may return while its last message is still in this process, to leave at the
// next call of MPI, and a rank that blocks inside NCCL makes none; the others would wait for the message, and NCCL for
// them. The thread never stops calling, so whatever is late leaves with its next round. The same thread keeps MPI going
// for the host's other communicators while the host waits for a device: MPI lets any call of a process move all of its
// messages.
//
// Threads: one host thread per rank uses it. Errors are texts; those that throw say so.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dist/collective.h"

namespace trencadis {

class Agreement {
 public:
  // Collective. `host` is its own alone.
  Agreement(std::unique_ptr<Communicator> host, const CommOptions& options, const AbortFlag* abort);
  // Tells the others that this rank makes no more calls, and waits until all say so or one has failed.
  ~Agreement();
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  // Writes down a call; it gets the next number, which its fingerprint then carries.
  int64_t add(Fingerprint& call);
  // Blocks until all ranks have made this call and agree. Throws Error when that will not be.
  void wait_for(const Fingerprint& call);
  // 128 bytes from every rank to every rank, by rank; two calls in the list. When it returns on one rank, the notes have
  // arrived on all. Throws as wait_for() does.
  using Note = std::array<int64_t, 16>;
  std::vector<Note> exchange(const std::string& what, const Note& own);
  // Makes this rank's failure known to all. The first text stays.
  void fail(const std::string& text);

  std::string failure() const;  // "" while all is well
  // Waits up to `seconds` for a failure to be found out.
  std::string failure_within(double seconds) const;
  bool agreed(int64_t number) const;
  std::vector<int> ranks_without(int64_t number) const;  // that have not made this call yet, as far as is known
  // An Error's text: why this rank stops waiting in a call.
  std::string gives_up(const Fingerprint& call, const std::string& why) const;

 private:
  enum class State : int64_t { works, leaves, failed };
  static constexpr int64_t kAtATime = 4;  // calls that are compared in one round
  // What every rank says in a round. It travels as bytes, hence plain members.
  struct Report {
    int64_t made = 0;  // calls
    State state = State::works;
    char text[240] = {};          // why it failed; ends with 0
    Note note{};                  // of its latest exchange()
    Fingerprint calls[kAtATime];  // from agreed_ on, as far as they have been made
  };

  void run();
  bool round(std::unique_lock<std::mutex>& lock);  // false: the last one
  bool compare();
  void set_failure(std::string text);

  const std::unique_ptr<Communicator> host_;
  const CommOptions options_;
  const AbortFlag* const abort_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool news_ = false, leaves_ = false;
  std::string failure_;
  bool failure_is_own_ = false;  // and the others do not know it yet
  Note note_{};
  int64_t made_ = 0, agreed_ = 0;  // calls of this rank, and those that all ranks have made alike
  std::deque<Fingerprint> calls_;  // [agreed_, made_)
  std::vector<Report> reports_;    // of the last round, by rank
  std::thread thread_;
};

}  // namespace trencadis
