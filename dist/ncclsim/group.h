// Group: the ranks of one communicator of the simulated NCCL. What an ncclComm_t points to, and the state of the
// library.
//
// Two kinds of group exist: of threads of this process (thread_group.h), and of processes of one host that share their
// devices' memory (process_group.h). Both end in perform() of collective_call.h.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "dist/ncclsim/collective_call.h"
#include "dist/ncclsim/launch_order.h"

namespace trencadis::ncclsim {

class Group {
 public:
  virtual ~Group() = default;
  virtual int size() const = 0;
  // Puts the rank's part of its next collective on the stream. Returns ncclSuccess, or what is wrong with the group.
  virtual ncclResult_t issue(int rank, const CollectiveCall& call, Buffers buffers, cudaStream_t stream) = 0;
  // The rank's queued collectives end without having done anything.
  virtual void abort(int rank) = 0;
  // What is wrong with the group, found by whichever rank; "" while nothing is.
  virtual std::string error() const = 0;
};

// Joins the group of that id; returns when all ranks have. Throws Error.
std::shared_ptr<Group> join_group(const ncclUniqueId& id, int ranks, int rank, int device);

class ThreadGroup;

// Everything that is not one communicator's. One mutex guards all of it, groups of threads included; it is taken before
// the executor's lock.
struct Library {
  static Library& instance();

  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::shared_ptr<ThreadGroup>> joining;  // by id
  LaunchOrder order;
  int groups_made = 0, groups_alive = 0;
};

}  // namespace trencadis::ncclsim

struct ncclComm {
  std::shared_ptr<trencadis::ncclsim::Group> group;
  int rank = 0, device = 0;
  std::string error_text;  // what ncclGetLastError() returned last
};
