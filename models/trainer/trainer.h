// Trainer: one training run, on one of its ranks. It computes nothing itself: it wires data,
// model, engine and reports.
#pragma once

#include "dist/communicator.h"
#include "models/checkpoints/checkpoint_saver.h"
#include "models/data/dataset.h"
#include "models/language_model.h"
#include "models/options/train_options.h"
#include "models/report/metrics.h"
#include "models/report/run_report.h"
#include "models/trainer/launch.h"
#include "optim/schedule.h"
#include "runtime/profile.h"
#include "zero/engine.h"

namespace trencadis {

class Trainer {
 public:
  // Collective: all ranks make one with the same options. Opens the data, takes memory, initialises or goes on from
  // `resumed` (null: a new training). Throws what on_all_ranks throws when a rank cannot. `world` carries host memory,
  // `group` that of the context's device, between the same ranks; on CPUs they are one. `profile` (null: none) is what
  // the context's kernels are timed into. All must outlive it.
  Trainer(const TrainOptions& options, Context& context, Communicator& world, Communicator& group, Progress progress,
          const FoundCheckpoint* resumed, Profile* profile);
  ~Trainer();

  // Trains, evaluates, samples, reports. Throws DivergedError after kMostSkips skipped steps in a row.
  void run();

  static constexpr int kMostSkips = 8;

 private:
  void open_data();
  void say(const std::string& line);  // rank 0, with progress
  void announce();
  StepRecord train_step();
  double evaluate();
  std::string generate();
  void gather_memory(StepRecord& record);
  std::string model_line() const;
  RunRecord record_of_start() const;
  void train();
  void save();
  void summarise();

  int64_t staging() const { return world_.staging_bytes() + engine_->staging_bytes(); }

  const TrainOptions options_;
  Communicator& world_;
  const bool chief_;  // rank 0
  Progress progress_;
  Context& context_;
  const int64_t resident_at_start_;
  Dataset dataset_;
  std::vector<int32_t> prompt_;
  std::unique_ptr<Batches> train_, val_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<ZeroEngine> engine_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<RunReport> report_;
  Schedule schedule_;
  Profile* const profile_;
  double profiled_seconds_ = 0;
  std::unique_ptr<CheckpointSaver> saver_;
  int64_t first_step_ = 0;    // of this process: what the checkpoint had done
  int64_t step_ = 0;          // done so far
  int64_t samples_ = 0;       // sequences consumed so far, by all ranks
  int64_t stop_signal_ = 0;   // what the ranks agreed on at the last step
  bool save_wished_ = false;  // likewise
  StepRecord last_;           // of the last step, for the summary
  int64_t generated_ = 0;     // tokens drawn so far
};

}  // namespace trencadis
