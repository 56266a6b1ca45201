// Checkpoints of a run, for all its ranks together: finding one to go on from, and saving.
//
//   Checkpoints checkpoints("out", engine, world);
//   if (const auto from = checkpoints.load()) first = from->step;   // the newest complete one
//   ...
//   checkpoints.save(step);                                         // out/step-00000120, at once and whole
//
// Every function is collective: all ranks call it at the same place, and it ends alike on all of them, with a result or
// with one Agreed error that names the ranks where something failed. A save that fails leaves the checkpoints before it
// as they were. `world` carries host memory, between the ranks of the engine: on CPUs its own communicator will do.
#pragma once

#include <memory>
#include <optional>

#include "dist/communicator.h"
#include "zero/checkpoint/checkpoint_folder.h"
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
// what was asked for in errors, a flag such as "--resume"; `notes` receives what is to be said: what was ignored, and
// why.
std::optional<FoundCheckpoint> find_checkpoint(const std::string& asked, const std::string& place, bool optional,
                                               Communicator& world, std::vector<std::string>& notes);

// Fills the engine with a checkpoint. with_states = false: the values alone, as if they had just been initialised.
// Throws Agreed<DataError> where it does not match the model, naming each difference, and for a value that is not finite
// unless the run had it when it saved and as_saved is true: no training starts from one. Returns what is to be said.
std::string load_checkpoint(const FoundCheckpoint& found, ZeroEngine& engine, Context& context, Communicator& world,
                            bool with_states, bool as_saved = true);

struct CheckpointOptions {
  int64_t keep_last = 2;                                    // checkpoints of this training; 0: all
  std::vector<std::pair<std::string, std::string>> config;  // for the index: settings of the run, as the caller likes
  // For errors: what the folder is called where the user chose it, and how to do without.
  std::string folder_is = "the folder of the checkpoints", or_else;
};

// The checkpoints of one training in one folder, of which no other process may save there at the same time.
class Checkpoints {
 public:
  // resumed: what the training goes on from where the caller has loaded that itself, or null. Makes the folder. Throws
  // Agreed<DataError> where it cannot be written to, or another run saves there. All but `options` and `resumed` must
  // outlive it.
  Checkpoints(std::string folder, ZeroEngine& engine, Communicator& world, CheckpointOptions options = {},
              const FoundCheckpoint* resumed = nullptr);

  // Fills the engine with the newest complete checkpoint, saved by whatever number of ranks in whatever stage, and says
  // where the training stood then. None there yet: nullopt, and the engine stays as it is.
  std::optional<CheckpointIndex> load();
  // Saves, unless this step is saved already. step: done so far, it names the checkpoint; samples: consumed so far by
  // all ranks, for whoever needs them to find the place in the data. Returns whether it saved.
  bool save(int64_t step, int64_t samples = 0);
  // What the last load() or save() has to say: what was ignored and why, how much took how long.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void write(CheckpointIndex& index);

  const std::string folder_;
  ZeroEngine& engine_;
  Communicator& world_;
  const CheckpointOptions options_;
  std::unique_ptr<FolderLock> lock_;  // on rank 0
  std::string run_;
  int64_t saved_step_ = -1;
  std::vector<std::string> notes_;
};

}  // namespace trencadis
