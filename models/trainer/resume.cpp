#include "models/trainer/resume.h"

#include <cstdlib>

#include "dist/on_all_ranks.h"
#include "models/options/train_flags.h"

namespace trencadis {

namespace {
int64_t number_of(const std::string& text) { return text.empty() ? 0 : std::strtoll(text.c_str(), nullptr, 10); }
}  // namespace

std::vector<std::string> continue_options(TrainOptions& options, const CheckpointIndex& index, int world) {
  std::vector<std::string> notes;
  const int64_t batch = number_of(index.setting("batch-size")), accum = number_of(index.setting("grad-accum"));
  const int64_t saved = batch * accum * index.world;  // sequences in a step
  if (options.total_batch_tokens == 0 && saved > 0) {
    const int64_t micro = options.batch_size * world;
    if (saved % micro != 0)
      throw UsageError(fmt::format(
          "--batch-size {} on {} rank{} makes micro-batches of {} sequences, and the checkpoint's steps of {} are no "
          "multiple of that; give a --batch-size that divides {}, or change the batch with --total-batch-tokens",
          options.batch_size, world, world == 1 ? "" : "s", micro, saved,
          saved % world == 0 ? fmt::format("{}", saved / world)
                             : fmt::format("it ({} has no part for each rank)", saved)));
    if (saved / micro != options.grad_accum)
      notes.push_back(fmt::format("grad-accum is {}, so that a step keeps its {} sequences ({} ranks saved, {} go on)",
                                  saved / micro, saved, index.world, world));
    options.grad_accum = saved / micro;
  }
  if (const int64_t now = options.batch_size * options.grad_accum * world; saved > 0 && now != saved)
    notes.push_back(fmt::format("a step has {} sequences from here on; it had {}", now, saved));

  std::string changed;
  for (const char* key : {"seed", "train-data", "val-data", "max-steps", "lr", "min-lr", "warmup-steps", "lr-schedule",
                          "weight-decay", "beta1", "beta2", "grad-clip", "dropout"}) {
    const std::string before = index.setting(key), now = setting_of(options, key);
    if (before != now)
      changed += fmt::format("{}{} {} -> {}", changed.empty() ? "" : ", ", key, before.empty() ? "''" : before,
                             now.empty() ? "''" : now);
  }
  if (!changed.empty()) notes.push_back("settings that are not those of the checkpoint: " + changed);
  return notes;
}

std::optional<FoundCheckpoint> resume_run(TrainOptions& options, Communicator& world, std::vector<std::string>& notes) {
  if (options.resume.empty()) return std::nullopt;
  const bool automatic = options.resume == "auto";
  std::optional<FoundCheckpoint> found =
      find_checkpoint("--resume", automatic ? options.out_dir : options.resume, automatic, world, notes);
  notes.push_back(found ? fmt::format("resumed from {}: step {}, {} ranks, ZeRO stage {}", found->folder,
                                      found->index.step, found->index.world, found->index.zero_stage)
                        : fmt::format("no checkpoint in {} yet: starting at step 0", options.out_dir));
  if (found)
    on_all_ranks(world, [&] {
      for (std::string& note : continue_options(options, found->index, world.size())) notes.push_back(std::move(note));
    });
  return found;
}

}  // namespace trencadis
