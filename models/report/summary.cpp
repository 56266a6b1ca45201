#include "models/report/summary.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace trencadis {

RunSummary summarise_run(const ZeroEngine& engine, const LanguageModel& model, int64_t batch_size, int64_t staging,
                         const StepRecord& last, int64_t resident) {
  const StagePlan plan = engine.predict(model.uses());
  const auto measured = [&](MemoryCategory category) {
    int64_t largest = 0;
    for (const RankMemory& rank : last.memory) largest = std::max(largest, rank[1 + static_cast<size_t>(category)]);
    return largest;
  };
  const int64_t activations =
      model.activation_bytes(batch_size, model.config().block_size, model.config().activation_checkpointing);
  RunSummary summary;
  summary.memory = {
      {"parameters", plan.peak.parameter, measured(MemoryCategory::parameter)},
      {"gradients", plan.peak.gradient, measured(MemoryCategory::gradient)},
      {"optimizer state", plan.peak.optimizer, measured(MemoryCategory::optimizer)},
      {"activations", activations, measured(MemoryCategory::activation)},
      {"communication", staging, measured(MemoryCategory::communication)},
  };
  // The process's own memory is the plan's where it is the device's: a GPU has memory of its own.
  if (engine.runtime().context.device().kind == Device::Kind::cpu) {
    int64_t total = 0;
    for (const SummaryRow& row : summary.memory) total += row.predicted;
    summary.memory.push_back({"resident, above start", total, resident});
  }

  const int64_t world = engine.runtime().world;
  if (world == 1) return summary;
  for (const auto& [kind, elements] : {std::pair{CollectiveKind::all_reduce, plan.all_reduce},
                                       std::pair{CollectiveKind::reduce_scatter, plan.reduce_scatter},
                                       std::pair{CollectiveKind::all_gather, plan.all_gather}}) {
    const int64_t sent = last.comm.at(Traffic::training, kind).bytes_sent;
    if (elements > 0 || sent > 0)
      summary.traffic.push_back({name_of(kind), elements / world * (world - 1) * kF32, sent});
  }
  return summary;
}

std::string summary_table(const RunSummary& summary) {
  std::string text;
  const auto rows = [&](const char* title, const std::vector<SummaryRow>& list) {
    if (list.empty()) return;
    text += fmt::format("  {:<24} {:>12} {:>12}\n", title, "predicted", "measured");
    for (const SummaryRow& row : list)
      text +=
          fmt::format("  {:<24} {:>12} {:>12}\n", row.name, format_bytes(row.predicted), format_bytes(row.measured));
  };
  rows("memory, peak of a rank", summary.memory);
  rows("sent in a step", summary.traffic);
  if (!text.empty()) text.pop_back();
  return text;
}

namespace {
// "VmHWM:     1234 kB" in /proc/self/status.
int64_t status_field(const char* name) {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  if (!file) return 0;
  int64_t bytes = 0;
  char line[256];
  while (std::fgets(line, sizeof line, file))
    if (std::strncmp(line, name, std::strlen(name)) == 0) {
      long long kilobytes = 0;
      if (std::sscanf(line + std::strlen(name), "%lld", &kilobytes) == 1) bytes = kilobytes * 1024;
    }
  std::fclose(file);
  return bytes;
}
}  // namespace

int64_t resident_bytes() { return status_field("VmRSS:"); }
int64_t peak_resident_bytes() { return status_field("VmHWM:"); }

}  // namespace trencadis
