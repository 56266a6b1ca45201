#include "models/checkpoints/checkpoint_saver.h"

namespace trencadis {

CheckpointSaver::CheckpointSaver(SaveOptions options, Communicator& world, ZeroEngine& engine,
                                 const FoundCheckpoint* resumed)
    : options_(std::move(options)), world_(world) {
  if (!options_.on) return;
  CheckpointOptions checkpoints;
  checkpoints.keep_last = options_.keep_last;
  checkpoints.config = options_.config;
  checkpoints.folder_is = "--out-dir";
  checkpoints.or_else = ", or --save-interval off";
  checkpoints_.emplace(options_.out_dir, engine, world, std::move(checkpoints), resumed);
}

bool CheckpointSaver::overdue() const {
  return options_.on && options_.interval_seconds > 0 && world_.rank() == 0 &&
         std::chrono::duration<double>(Clock::now() - last_save_).count() >= options_.interval_seconds;
}

bool CheckpointSaver::due_at(int64_t step) const {
  return options_.on && options_.interval_steps > 0 && step % options_.interval_steps == 0;
}

std::vector<std::string> CheckpointSaver::save(int64_t step, int64_t samples) {
  if (!checkpoints_ || !checkpoints_->save(step, samples)) return {};
  last_save_ = Clock::now();
  return checkpoints_->notes();
}

}  // namespace trencadis
