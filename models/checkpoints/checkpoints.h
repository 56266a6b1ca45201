// Checkpoints of a run, for all its ranks together: finding one to go on from, and saving.
//
// Every function is collective: all ranks call it at the same place, and it ends alike on all of them, with a result or
// with one Agreed error that names the ranks where something failed. A save that fails leaves the checkpoints before it
// as they were.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "dist/communicator.h"
#include "models/checkpoints/checkpoint_folder.h"
#include "zero/checkpoint/index.h"
#include "zero/engine.h"

namespace trencadis {

struct FoundCheckpoint {
  std::string folder;
  CheckpointIndex index;
  double seconds = 0;  // that finding and checking it took
};

// The checkpoint `place` itself, or the newest complete one of a run's folder. Every file has been checked against its
// CRC-32C, each by one rank. Where there is none: an Agreed<DataError>, or nothing if it is `optional`. `asked` names
// the flag in errors, "--resume"; `notes` receives what is to be said: what was ignored, and why.
std::optional<FoundCheckpoint> find_checkpoint(const std::string& asked, const std::string& place, bool optional,
                                               Communicator& world, std::vector<std::string>& notes);

// Fills the engine with a checkpoint. with_states = false: the values alone, as if they had just been initialised.
// Throws Agreed<DataError> where it does not match the model, naming each difference. Returns what is to be said.
std::string load_checkpoint(const FoundCheckpoint& found, ZeroEngine& engine, Context& context, Communicator& world,
                            bool with_states);

struct SaveOptions {
  std::string out_dir;
  bool on = true;
  int64_t interval_steps = 0;                               // 0: not by steps
  double interval_seconds = 0;                              // 0: not by time
  int64_t keep_last = 2;                                    // checkpoints of this training; 0: all
  int zero_stage = 0;                                       // for the index, as is
  std::vector<std::pair<std::string, std::string>> config;  // the run's flags and values
};

class CheckpointSaver {
 public:
  // resumed: where the run goes on from, or null. Throws where the out_dir cannot be written to, or another run saves
  // there. All but `options` and `resumed` must outlive it.
  CheckpointSaver(SaveOptions options, Communicator& world, Context& context, ZeroEngine& engine,
                  const FoundCheckpoint* resumed);

  // Whether this rank wishes to save because of the time that has passed. Ranks agree on the wish, not on the clock.
  bool overdue() const;
  // Whether --save-interval names this step.
  bool due_at(int64_t step) const;
  bool on() const { return options_.on; }

  // Saves unless this step is saved already. Returns what is to be said.
  std::vector<std::string> save(int64_t step, int64_t samples);

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<std::string> write(CheckpointIndex& index);

  const SaveOptions options_;
  Communicator& world_;
  Context& context_;
  ZeroEngine& engine_;
  std::unique_ptr<FolderLock> lock_;  // on rank 0
  std::string run_;
  int64_t saved_step_ = -1;
  Clock::time_point last_save_ = Clock::now();
};

}  // namespace trencadis
