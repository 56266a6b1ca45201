// The executor behind executor.h, as the simulator's own files see it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/cudasim/executor.h"
#include "runtime/cudasim/stream_queue.h"

namespace trencadis::cudasim {

class Executor {
 public:
  static Executor& instance();

  // One call of the CUDA API: holds the executor's lock. `name` is for the message when work calls CUDA.
  class Call {
   public:
    explicit Call(const char* name);
    std::unique_lock<std::mutex>& lock() { return lock_; }

   private:
    std::unique_lock<std::mutex> lock_;
  };

  // All below: inside a Call.
  CUstream_st* make_stream(int device, bool waits_for_legacy);
  void destroy_stream(CUstream_st* stream);
  CUstream_st* resolve(cudaStream_t stream, int device);  // null and cudaStreamLegacy: the legacy stream of the device
  const std::vector<CUstream_st*>& streams() const { return streams_; }

  // Appends; the position and mark are filled in. Then lets the schedule run what it wants to.
  void append(CUstream_st* stream, std::unique_ptr<Operation> operation);
  void check_arrival(const Rendezvous& rendezvous, int party) const;
  // Blocks until the mark is done (null: at once). The host thread then sees what the stream did.
  void wait_for(Call& call, const std::shared_ptr<Mark>& mark);
  // Whether it is done. If not, one operation that it needs may run: a host that polls gets there, later.
  bool poll(const std::shared_ptr<Mark>& mark);

  Schedule schedule;
  uint64_t draws = 0;  // state of seed:N
  int64_t operations = 0;
  int threads_alive = 0;             // of HostThreads
  std::condition_variable progress;  // something ran, came, or a thread ended

 private:
  Executor();
  uint64_t draw(uint64_t bound);
  bool is_ready(const CUstream_st& stream) const;  // its head can run
  CUstream_st* choose(bool only_needed);
  bool step(bool only_needed);  // runs one operation if any can
  void run_head(CUstream_st& stream);
  void run_rendezvous(std::shared_ptr<Rendezvous> rendezvous);
  void begin_head(CUstream_st& stream);  // these three: in the stream's context
  void run_work(CUstream_st& stream);
  void end_head(CUstream_st& stream);
  void clean_up(CUstream_st& stream);  // after its operation
  void need(const Mark& mark);
  std::vector<const CUstream_st*> blockers(const CUstream_st& stream) const;
  bool in_circle(const CUstream_st* from) const;
  std::string describe(const CUstream_st& stream) const;
  [[noreturn]] void report_deadlock(const Mark& mark, const std::string& reason) const;

  std::mutex mutex_;
  std::vector<CUstream_st*> streams_;  // by number
  std::vector<CUstream_st*> legacy_;   // by device; null: not used yet
  int created_ = 0;
  int64_t moves_ = 0;                // operations that came or ran
  std::vector<const Mark*> waited_;  // by members of HostThreads
  std::chrono::seconds patience_;
};

}  // namespace trencadis::cudasim
