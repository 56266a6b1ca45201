// HostCommunicator: what the backends that work on host memory (local, thread, mpi) have in common.
//
// It checks arguments, numbers the calls, puts each on its stream, compares fingerprints before any data moves, injects
// delays, counts, and remembers failures; a backend says how ranks meet and how bytes travel. A group of size 1 is
// finished here: its collectives are copies, and no backend is asked.
//
// Invariants: calls run one at a time and in the order in which they were made, whatever thread made them; so a barrier
// on the host waits for the collectives still on a stream. After an Error the communicator stays failed, because the
// ranks no longer know how far the others got. Work left on a stream when the communicator dies does nothing but throw.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "dist/collective.h"

namespace trencadis {

class HostCommunicator : public Communicator {
 public:
  int rank() const final { return rank_; }
  int size() const final { return size_; }
  void all_reduce(View data, ReduceOp op, Stream& stream, CollectiveLabel label) final;
  void reduce_scatter(View in, View shard, bool accumulate, Stream& stream, CollectiveLabel label) final;
  void all_gather(ConstView shard, View out, Stream& stream, CollectiveLabel label) final;
  void broadcast(View data, int root, Stream& stream, CollectiveLabel label) final;
  void barrier(CollectiveLabel label) final;
  CommCounters counters() const final;

 protected:
  using Clock = std::chrono::steady_clock;

  // One call, as the backend gets it.
  struct Call {
    Fingerprint fingerprint;
    CollectiveLabel label;
    ConstView in;  // reduce_scatter: all pieces; all_gather: the shard
    View out;      // reduce_scatter: the shard; all_gather: all pieces; all_reduce, broadcast: the data
    bool accumulate = false;
  };

  // An all_reduce that sends everything to everybody, one message time instead of two. Not for training, whose traffic
  // is promised to be 2 n (W-1)/W.
  static bool sends_all_at_once(const Call& call) {
    return call.label.traffic != Traffic::training && call.out.bytes() <= kSmallAllReduceBytes;
  }

  HostCommunicator(int rank, int size, CommOptions options, const AbortFlag* abort);

  // The backend's part. All run on the stream's thread (or the host's, for barrier and split), one at a time, and never
  // with size 1. agree: exchanges fingerprints and ends in check_agreement(); when it returns, all ranks are here.
  virtual void agree(const Call& call) = 0;
  virtual void do_all_reduce(const Call& call) = 0;
  virtual void do_reduce_scatter(const Call& call) = 0;
  virtual void do_all_gather(const Call& call) = 0;
  virtual void do_broadcast(const Call& call) = 0;
  // The last thing of every call: a backend that reads other ranks' memory waits here until all have read.
  virtual void leave(const Call&) {}
  // A call failed on this rank, with this text.
  virtual void failed(const std::string&) {}

  // Runs body on the host, as one call in the common order, once all ranks are here.
  void run_on_host(CollectiveLabel label, const std::function<void(const Call&)>& body);

  // For loops that wait for other ranks: throws when they should give up, because of the abort flag, of the timeout
  // since last_progress, or because this communicator is being destroyed. missing() says who is waited for.
  void check_patience(const Call& call, Clock::time_point last_progress,
                      const std::function<std::vector<int>()>& missing) const;

  // To be called where elements leave for another rank.
  void count_sent(const Call& call, int64_t elements);

  // First statement of every final destructor: ends a call that is running, and keeps later ones out.
  void close() noexcept;
  bool has_failed() const;

  const CommOptions& options() const { return options_; }
  const AbortFlag* abort_flag() const { return abort_; }

 private:
  // What queued work shares with the communicator, and may outlive it.
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<bool> closed{false};
    int inside = 0;        // pieces of queued work that use the communicator now
    int64_t finished = 0;  // calls; also the number of the one that may run next
    std::string failure;   // of the first call that failed
  };
  class Ticket;

  Call make_call(CollectiveKind kind, CollectiveLabel label, DType dtype, int64_t count, ReduceOp op, int root);
  void enqueue(Stream& stream, Call call);
  void dispatch_call(const Call& call);
  void perform(const Call& call, const std::function<void(const Call&)>& body);
  void wait_for_turn(const Call& call) const;
  void finish(const std::string& failure);

  const int rank_, size_;
  const CommOptions options_;
  const AbortFlag* const abort_;
  std::atomic<int64_t> next_sequence_{0};
  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  mutable std::mutex counters_mutex_;
  CommCounters counters_;
};

}  // namespace trencadis
