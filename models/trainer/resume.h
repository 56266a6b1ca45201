// Going on with a training that was saved: which checkpoint, and what of the options follows from it.
#pragma once

#include <optional>

#include "models/options/train_options.h"
#include "zero/checkpoint/checkpoints.h"

namespace trencadis {

// Fits the options to a run that goes on: unless --total-batch-tokens says another, the number of sequences in a step
// stays, on any number of ranks and whatever --grad-accum says, by as many micro-batches as that takes. Throws
// UsageError that names the flag where that does not divide. Returns what is to be said: that, and which settings are
// not those of the run that saved.
std::vector<std::string> continue_options(TrainOptions& options, const CheckpointIndex& index, int world);

// Both, as --resume asks for them; nothing without --resume.
std::optional<FoundCheckpoint> resume_run(TrainOptions& options, Communicator& world, std::vector<std::string>& notes);

}  // namespace trencadis
