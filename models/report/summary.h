// The end of a run in numbers: what was predicted from the configuration, and what was measured.
#pragma once

#include <string>
#include <vector>

#include "models/language_model.h"
#include "models/report/metrics.h"
#include "zero/engine.h"

namespace trencadis {

struct SummaryRow {
  std::string name;
  int64_t predicted = 0, measured = 0;  // bytes
};

struct RunSummary {
  // The largest of any rank, inside a step; on the CPU, last: resident memory above the start's.
  std::vector<SummaryRow> memory;
  std::vector<SummaryRow> traffic;  // what rank 0 sent in a step, by collective; empty on one rank
};

// staging: bytes of the communicators' buffers, which follow from their options and W. last: the run's last step.
// resident: how far the peak of resident memory lies above the start's, largest of any rank.
RunSummary summarise_run(const ZeroEngine& engine, const LanguageModel& model, int64_t batch_size, int64_t staging,
                         const StepRecord& last, int64_t resident);

std::string summary_table(const RunSummary& summary);

// Resident memory of this process, bytes (/proc/self/status): now, and at its peak so far. 0 where it is not known.
int64_t resident_bytes();
int64_t peak_resident_bytes();

}  // namespace trencadis
