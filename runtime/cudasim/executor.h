// The executor: what a GPU's scheduler is on the device. Streams are in-order queues; one executor per process decides
// which runnable operation is next, and runs it on a host thread that waits for the device.
//
// The order is the point of it. A program that is right gives the same numbers under every schedule; one that forgot to
// wait for an event gives wrong ones under some:
//   eager    an operation runs as soon as it can: a device that is faster than the host
//   lazy     nothing runs before a host thread waits for it, and of what is needed, the newest stream goes first: beside
//            a compute stream, which is made first, communication runs ahead as far as the events allow
//   late     as lazy, but the oldest stream goes first: communication is as late as the events allow
//   seed:N   any order, drawn from N
// The environment variable TRENCADIS_SIM_SCHEDULE names one; without it the schedule is lazy.
//
// Invariants: operations run one at a time, under the executor's lock, each after all of its stream that were enqueued
// before and after all that it waits for. Work must not call CUDA (CUDA forbids it to host functions as well) and must
// not wait for another host thread.
//
// Errors end the process with a message and exit code 97: an exception that comes out of work (a kernel that broke a
// rule), CUDA called from inside work, and deadlock. Deadlock is reported at once when operations wait for each other in
// a circle or when all threads that a HostThreads announces wait; else after 60 seconds in which nothing moved
// (TRENCADIS_SIM_PATIENCE: another number of seconds).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trencadis::cudasim {

struct Mark;

struct Schedule {
  enum class Policy { eager, lazy, late, seeded };
  Policy policy = Policy::lazy;
  uint64_t seed = 0;

  static Schedule parse(const std::string& text);  // "eager", "lazy", "late", "seed:N"; throws Error
  std::string name() const;
};
Schedule schedule();
void set_schedule(Schedule schedule);  // from the next operation on; also restarts the draws of seed:N

// Appends work to the stream (null: the current device's legacy stream). `what` is shown in messages. Kernel launches
// and copies come through here.
void enqueue(cudaStream_t stream, std::string what, std::function<void()> work);

// One operation of several streams, a party each: it runs when it is the head of all their queues, and all of them go on
// after it. A collective is a rendezvous: every rank brings its stream.
class Rendezvous {
 public:
  using Body = std::function<void(Rendezvous&)>;
  Rendezvous(std::string what, int parties, Body body);

  const std::string& what() const { return what_; }
  int parties() const { return static_cast<int>(marks_.size()); }
  // Inside the body: does work as the stream of that party, after what earlier calls did. All access to the parties'
  // device memory belongs in here: this is what the race detector sees.
  void as_party(int party, const std::function<void()>& work);

 private:
  friend class Executor;
  const std::string what_;
  Body body_;
  int arrived_ = 0;
  bool broken_ = false;  // a party was taken out
  bool needed_ = false;
  std::vector<std::shared_ptr<Mark>> marks_;  // of each party's operation; null: not there yet, or all is over
};
// Appends the party's part to its stream. Each party comes once.
void enqueue(cudaStream_t stream, std::shared_ptr<Rendezvous> rendezvous, int party);
// Takes the party out: its operation, if it has not run, ends without work when its turn comes, and the rendezvous will
// not take place. The other parties wait until they are taken out as well.
void withdraw(Rendezvous& rendezvous, int party);

// Announces host threads (ranks) that will call CUDA, so that a deadlock among them is known at once: when every one that
// has not ended waits for the device and nothing can run. The announcer makes it, each thread makes a Member first.
class HostThreads {
 public:
  explicit HostThreads(int count);
  ~HostThreads();  // all members have ended
  HostThreads(const HostThreads&) = delete;
  HostThreads& operator=(const HostThreads&) = delete;

  class Member {
   public:
    explicit Member(HostThreads&);
    ~Member();
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
  };

 private:
  int open_;  // members that have not begun
};

// Operations that have run in this process.
int64_t operations_run();

// Prints "cudasim: message" and ends the process with exit code 97.
[[noreturn]] void fail(const std::string& message);

}  // namespace trencadis::cudasim
