// The checkpoints in a run's folder, as files: names, which are complete, and the steps that make a new one appear at
// once and whole, or not at all.
//
//   OUT/step-00000120/           complete: it has this name only since all of it was on the disk
//   OUT/step-00000240.partial/   being written or being removed, or left behind by a run that died in doing so
//   OUT/step-00000120.replaced/  complete: it makes room for a second save of this step, and goes when that is complete
//   OUT/step-00000120.of-run-*/  complete, of another training that reached this step in the same folder; never touched
//   OUT/latest                   a line: step-00000120
//   OUT/.lock                    empty; locked by the run that saves here
//
// Why a rename: it is the one change to a folder that a reader, or a machine that loses power, sees either not at all or
// done. Everything before it is brought to the disk with fsync first, for a rename that arrives before the data it
// names would be worth nothing. And nothing is removed before the rename that makes it superfluous is on the disk.
// Wherever a process dies or power fails, list_checkpoints() then finds what was complete before or what is complete now.
// One process calls this (rank 0). Errors are DataErrors that name path and remedy.
#pragma once

#include <string>
#include <vector>

#include "zero/checkpoint/index.h"

namespace trencadis {

std::string checkpoint_name(int64_t step);  // "step-00000120"

// A folder that passes for a checkpoint; index.json has been read, shards have not.
struct CheckpointCandidate {
  std::string folder;
  std::string index_text;
  CheckpointIndex index;
};

// Reads and parses folder/index.json.
CheckpointCandidate read_candidate(const std::string& folder);

struct CheckpointListing {
  std::vector<CheckpointCandidate> candidates;  // the newest first, by the time at which they were saved
  std::vector<std::string> ignored;             // what is none, and why: "out/step-00000240.partial: ..."
};
// An out_dir that does not exist has no checkpoints.
CheckpointListing list_checkpoints(const std::string& out_dir);

// A new, empty OUT/step-N.partial; what an earlier attempt left there is removed. The out_dir must exist.
std::string begin_checkpoint(const std::string& out_dir, int64_t step);

// Writes the index, brings the folder to the disk, gives it its name and then makes `latest` name it. What stands under
// this name gives way: an earlier save of this training is removed in the end, a checkpoint of another training keeps a
// name of its own. saved_at is raised above that of all checkpoints in the folder, for clocks may be set back and the
// newest must be this one. Returns notes for the user.
std::vector<std::string> finish_checkpoint(const std::string& out_dir, CheckpointIndex index);

// Removes what an attempt to save has left. Never throws.
void abandon_checkpoint(const std::string& out_dir, int64_t step) noexcept;

// Removes all but the newest `keep` checkpoints of this training (0: none is removed), and parts of checkpoints that
// were never finished. Checkpoints of other trainings stay. Returns notes on what could not be removed.
std::vector<std::string> prune_checkpoints(const std::string& out_dir, const std::string& run, int64_t keep);

// Keeps two runs from saving to one folder at the same time, where each would clear away what the other is writing. The
// system gives the lock back when its process ends, however it ends; file systems without locks give none.
class FolderLock {
 public:
  // Waits up to `patience` seconds for another holder, as the ranks of a run that was killed may take a moment to end.
  // Then throws DataError, in which `what` says what the folder is to the user.
  FolderLock(const std::string& folder, const std::string& what, double patience = 10);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

// Throws DataError unless this process can make files in the folder; `what` names it, `or_else` ends the error.
void check_folder_writable(const std::string& folder, const std::string& what, const std::string& or_else);

}  // namespace trencadis
