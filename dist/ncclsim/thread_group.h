// Ranks as threads of one process. A collective is a rendezvous of the ranks' streams: the executor runs it when all of
// them have come to it, under whatever schedule is on.
//
// When a rank calls something else than the others, NCCL would hang or overwrite memory. Here the group then has an
// error, which ncclCommGetAsyncError() tells all ranks, nobody's memory is touched, and the collective never ends: who
// waits for it without asking for errors is in a deadlock, which the executor reports.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "dist/ncclsim/group.h"
#include "runtime/cudasim/executor.h"

namespace trencadis::ncclsim {

class ThreadGroup final : public Group {
 public:
  ThreadGroup(int number, int ranks);
  ~ThreadGroup() override;

  int size() const override { return static_cast<int>(members_.size()); }
  ncclResult_t issue(int rank, const CollectiveCall& call, Buffers buffers, cudaStream_t stream) override;
  void abort(int rank) override;
  std::string error() const override;

  // Under the library's lock: a rank comes with its device. Whether all are there.
  bool add_member(int ranks, int rank, int device);
  bool complete() const { return joined_ == size(); }
  const std::string& error_locked() const { return error_; }

 private:
  // What a collective does; shared with the rendezvous, which outlives the Pending.
  struct Work {
    CollectiveCall call;
    std::vector<Buffers> buffers;  // by rank
  };
  // A collective that some rank has called and another one has not.
  struct Pending {
    int64_t sequence = 0;
    int first_caller = 0, callers = 0;
    std::shared_ptr<Work> work;
    std::shared_ptr<cudasim::Rendezvous> rendezvous;
  };
  struct Part {
    std::weak_ptr<cudasim::Rendezvous> rendezvous;
    int party = 0;
  };
  struct Member {
    int device = -1;  // -1: has not joined
    int64_t calls = 0;
    bool aborted = false;
    std::deque<Part> open;  // in calls that may not have run; those that have are dropped now and then
  };
  std::shared_ptr<Pending> pending(int64_t sequence);
  void set_error(std::string text);

  const int number_;
  int joined_ = 0;
  std::vector<Member> members_;  // by rank
  std::vector<int> devices_;     // by rank
  std::deque<std::shared_ptr<Pending>> pending_;
  std::string error_;
};

}  // namespace trencadis::ncclsim
