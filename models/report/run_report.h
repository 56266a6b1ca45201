// RunReport: what a run leaves in its folder for people to look at: run.json, timeline.json, report.html, and the
// trace. Rank 0 writes; the others take part where all must (recorder.h).
#pragma once

#include "models/report/recorder.h"
#include "models/report/run_record.h"
#include "models/report/summary.h"

namespace trencadis {

struct RunReportOptions {
  std::string out_dir;
  std::string metrics, report, trace;  // files; empty: none
  int64_t max_steps = 0;
  std::vector<std::pair<std::string, std::string>> config;  // the run's flags and values
};

class RunReport {
 public:
  // Makes the folder, and an earlier run's timeline.json unseen; its page stays until this run's takes its place. Throws
  // DataError where it cannot be written: on rank 0 alone, so to be called inside something like on_all_ranks.
  // steps: how many this process will make.
  RunReport(RunReportOptions options, Context& context, Communicator& world, int64_t steps);

  // Collective. `run` says what is known of the run at its start.
  void start(RunRecord run);
  Recorder& recorder() { return recorder_; }

  // What an end of the run adds.
  struct End {
    std::string status = "finished", digest, sample;
    int64_t steps_done = 0;
    RunSummary summary;
    std::vector<RankMemory> memory;  // of the last step
  };
  // Collective. Returns what is to be said: where things were written.
  std::vector<std::string> finish(const End& end);
  // After an error, when ranks may be gone: what this rank can do alone. Never throws.
  void abandon(const std::string& status) noexcept;

 private:
  void write_run() const;

  const RunReportOptions options_;
  const bool chief_;
  Recorder recorder_;
  RunRecord run_;
  Tracer::Clock::time_point start_;
};

// The rows of a summary, as run.json keeps them: predicted only (a run that begins), or with what was measured.
void set_rows(RunRecord& run, const RunSummary& summary, bool measured);

// Makes the folder that `file` is to be written in; an error shows when the file itself is opened.
void make_folder_of(const std::string& file);

}  // namespace trencadis
