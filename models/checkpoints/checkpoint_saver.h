// When a run saves, in the words of its flags: by steps, by time, or not at all. What saving is stands in
// zero/checkpoint/checkpoints.h.
#pragma once

#include <chrono>
#include <optional>

#include "zero/checkpoint/checkpoints.h"

namespace trencadis {

struct SaveOptions {
  std::string out_dir;
  bool on = true;
  int64_t interval_steps = 0;                               // 0: not by steps
  double interval_seconds = 0;                              // 0: not by time
  int64_t keep_last = 2;                                    // checkpoints of this training; 0: all
  std::vector<std::pair<std::string, std::string>> config;  // the run's flags and values
};

class CheckpointSaver {
 public:
  // Collective. resumed: where the run goes on from, or null. Throws where the out_dir cannot be written to, or another
  // run saves there. All but `options` and `resumed` must outlive it.
  CheckpointSaver(SaveOptions options, Communicator& world, ZeroEngine& engine, const FoundCheckpoint* resumed);

  // Whether this rank wishes to save because of the time that has passed. Ranks agree on the wish, not on the clock.
  bool overdue() const;
  // Whether --save-interval names this step.
  bool due_at(int64_t step) const;
  bool on() const { return options_.on; }

  // Collective. Saves unless this step is saved already. Returns what is to be said.
  std::vector<std::string> save(int64_t step, int64_t samples);

 private:
  using Clock = std::chrono::steady_clock;

  const SaveOptions options_;
  Communicator& world_;
  std::optional<Checkpoints> checkpoints_;  // none when saving is off
  Clock::time_point last_save_ = Clock::now();
};

}  // namespace trencadis
