// Recorder: turns the tracer on and off over a run, and brings what the ranks recorded together into files.
//
// One early step is always recorded and kept as timeline.json in the run folder: the report page's picture of one
// step. With --trace every step is, up to kMostEvents over all ranks. Recording reaches from the step before the
// kept one to the step after it, since stages 1 and 2 send parameters under the next forward; only what overlaps the
// kept step is written.
//
// All ranks make the same calls; bringing the pieces together is traffic of class other.
#pragma once

#include <string>

#include "dist/communicator.h"
#include "models/report/timeline.h"
#include "runtime/context.h"

namespace trencadis {

class Recorder {
 public:
  static constexpr int64_t kKeptStep = 3;  // since the start of this process; the last step, if there are fewer
  static constexpr size_t kMostEvents = 1'000'000;

  // folder: where timeline.json goes. trace: the file of --trace; empty: none. steps: how many this process will make.
  Recorder(Context& context, Communicator& world, std::string folder, std::string trace, int64_t steps,
           size_t most_events = kMostEvents);

  // Collective: from here times are counted, on all ranks.
  void start();
  // Around each step; `number` is shown. end_step is collective.
  void begin_step();
  void end_step(int64_t number);
  // Collective, at the end of a run, however it ended as long as all ranks are there. Returns what is to be said.
  std::string finish();
  // When the ranks are no longer together: writes what this rank has.
  std::string finish_alone();

 private:
  bool near_kept_step() const { return step_ + 1 >= kept_ && step_ <= kept_ + 1; }
  void record(bool on);
  void drain();
  void write_kept_step();

  Context& context_;
  Communicator& world_;
  const std::string folder_, trace_;
  const int64_t kept_;
  const size_t most_events_;  // of all ranks in the trace
  const size_t most_;         // events of this rank in the trace
  int64_t step_ = 0;          // of this process, from 1
  int64_t kept_number_ = 0;   // how the kept step is called
  bool recording_ = false, kept_written_ = false, full_ = false;
  Tracer::Clock::time_point zero_, step_begin_;
  BytesByCategory live_{};
  Timeline window_, whole_;
};

}  // namespace trencadis
