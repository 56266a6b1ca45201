// What a cudaStream_t and a cudaEvent_t of the simulator point to. Everything here is guarded by the executor's lock.
//
// A stream is a queue of operations; the n-th operation ever enqueued on it has position n. Each operation has a Mark,
// which outlives it: whoever waits for the operation holds the mark. An event is no more than the mark of the last
// operation that was enqueued before it was recorded.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cudasim/race_context.h"

namespace trencadis::cudasim {

class Rendezvous;

// Invariant: `stream` may be followed only while !done (the stream may be destroyed afterwards).
struct Mark {
  CUstream_st* stream = nullptr;
  int64_t position = 0;
  bool done = false;
  std::chrono::steady_clock::time_point time;  // of completion
  SyncPoint order;                             // released by the stream when done
};

struct Operation {
  std::string what;
  std::function<void()> work;                // may be empty: only waits
  std::vector<std::shared_ptr<Mark>> after;  // beside stream order
  std::shared_ptr<Rendezvous> rendezvous;    // then `work` is empty and this is one party's part
  int party = 0;
  bool is_host_function = false;  // host code: may not touch device memory
  SyncPoint enqueued;             // released by the host
  std::shared_ptr<Mark> mark;
};

}  // namespace trencadis::cudasim

struct CUstream_st {
  int number = 0;  // in the order of creation; appears in messages
  int device = 0;
  bool is_legacy = false;           // the device's stream 0
  bool waits_for_legacy = false;    // created without cudaStreamNonBlocking
  bool destroyed = false;           // by the host; ends when the queue is empty
  int64_t enqueued = 0, ended = 0;  // operations ever; the queue holds positions (ended, enqueued]
  int64_t needed = 0;               // a host thread waits until ended >= needed
  std::deque<std::unique_ptr<trencadis::cudasim::Operation>> queue;
  std::shared_ptr<trencadis::cudasim::Mark> last;  // of the newest operation, null if there never was one
  trencadis::cudasim::RaceContext context;

  trencadis::cudasim::Operation& at(int64_t position) { return *queue[static_cast<size_t>(position - ended - 1)]; }
};

struct CUevent_st {
  bool timing = true;
  bool recorded = false;
  std::shared_ptr<trencadis::cudasim::Mark> mark;  // null: recorded on a stream that never had work
  std::chrono::steady_clock::time_point time;      // of such a record
};
