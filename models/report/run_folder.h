// Reads what a run left in its folder: run.json, metrics.jsonl, timeline.json. Any of them may be missing or cut short,
// because the run crashed or was told not to write it; then the page is made of the rest, and says what is missing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/report/run_record.h"
#include "models/report/timeline.h"

namespace trencadis {

// By step, all of one length; NaN where the file has no number.
struct MetricsColumns {
  std::vector<double> step, loss, val_loss, lr, grad_norm, step_ms, tokens_per_sec;
  std::vector<int64_t> peak_by_rank;  // bytes, of the last step
  int64_t skipped = 0;                // steps that updated nothing
};

struct RunFolder {
  std::string name;  // as it is shown: the folder's, or as much of its path as tells it from the others
  std::string path;
  std::optional<RunRecord> run;
  MetricsColumns metrics;
  int64_t kept_step = 0;
  std::vector<Timeline> ranks;       // of the kept step
  std::vector<std::string> missing;  // sentences

  // Median over the second half of the run; NaN where nothing is known.
  double typical_step_ms() const;
  double last_loss() const;
};

// Throws DataError for a folder that does not exist.
RunFolder read_run_folder(const std::string& path);
std::vector<RunFolder> read_run_folders(const std::vector<std::string>& paths);

// Whole lines of metrics.jsonl. A last line that was cut is left out, and `complaint` says so. Where a step comes
// again, because a run was resumed, the later lines count.
MetricsColumns parse_metrics(const std::string& text, std::string& complaint);

}  // namespace trencadis
