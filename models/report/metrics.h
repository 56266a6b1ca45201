// What a run reports: one JSON object per step in a file, one line per step on the screen.
#pragma once

#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "runtime/memory_tracker.h"

namespace trencadis {

// Bytes of one rank inside a step: the peak over everything, then the peak of each category.
using RankMemory = std::array<int64_t, 1 + kMemoryCategories>;

struct StepRecord {
  int64_t step = 0;  // from 1
  double loss = 0, grad_norm = 0, lr = 0;
  std::optional<double> val_loss;
  double step_seconds = 0;
  int64_t tokens = 0, tokens_seen = 0;  // of the step, of the run; all ranks
  bool skipped = false;
  std::vector<RankMemory> memory;  // by rank
  CommCounters comm;               // sent by this rank, see StepResult::traffic
};

// metrics.jsonl. Only rank 0 has one. Every record is flushed whole, so that a killed run leaves whole lines.
class MetricsFile {
 public:
  // kept_steps > 0: goes on with a file that is there; its records of later steps, which are to be trained again, are
  // left out. Throws DataError when it cannot be written.
  explicit MetricsFile(const std::string& path, int64_t kept_steps = 0);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  void write(const StepRecord& record);

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
};

// "step 12/300 | loss 2.3456 | norm 0.91 | lr 6.0e-04 | 41.2 ms | 24850 tok/s | mem 38.2 MiB"
std::string step_line(const StepRecord& record, int64_t max_steps);
// "[=====                   ] 12/300 | 0:41 left | loss 2.3456 | 41.2 ms | 24850 tok/s", at most `columns` wide: a line
// that wraps cannot be redrawn.
std::string bar_line(const StepRecord& record, int64_t max_steps, double seconds_left, int columns);
std::string format_bytes(int64_t bytes);  // "38.2 MiB"

// Shows steps: a bar with the time left, on a terminal that redraws; else lines, the first ones all and then one every
// few seconds.
class Progress {
 public:
  // mode as --progress: auto, bar, plain, off. auto is a bar only on a terminal that is not mpirun's.
  Progress(const std::string& mode, int64_t max_steps, bool under_mpirun);
  void step(const StepRecord& record);
  void note(const std::string& line);  // something that is not a step; never lost behind a bar

 private:
  enum class Mode { off, plain, bar } mode_;
  int64_t max_steps_, shown_ = 0;
  double smoothed_seconds_ = 0;
  std::chrono::steady_clock::time_point last_;
  bool bar_drawn_ = false;
};

}  // namespace trencadis
