#include "models/report/run_report.h"

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "models/report/chrome_trace.h"
#include "models/report/page.h"
#include "runtime/check.h"

namespace trencadis {

namespace {

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

}  // namespace

void make_folder_of(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::error_code ignored;  // the file's own error says more
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
}

RunReport::RunReport(RunReportOptions options, Context& context, Communicator& world, int64_t steps)
    : options_(std::move(options)),
      chief_(world.rank() == 0),
      recorder_(context, world, options_.out_dir, options_.trace, steps),
      start_(Tracer::Clock::now()) {
  if (!chief_) return;
  make_folder_of(options_.out_dir + "/run.json");
  std::error_code ignored;
  std::filesystem::remove(options_.out_dir + "/timeline.json", ignored);  // of a run that wrote here before
  run_.metrics = options_.metrics;
  run_.version = "Trencadís " TRENCADIS_VERSION;
  run_.started = now_utc();
  run_.max_steps = options_.max_steps;
  run_.world = world.size();
  run_.config = options_.config;
  write_run();
  // What is written at the end must not fail then.
  for (const std::string& file : {options_.trace, options_.report}) {
    if (file.empty()) continue;
    make_folder_of(file);
    check_writable(file);
  }
}

void RunReport::start(RunRecord run) {
  if (chief_) {
    run_.data = std::move(run.data);
    run_.model = std::move(run.model);
    run_.parameters = run.parameters;
    run_.memory = std::move(run.memory);
    run_.traffic = std::move(run.traffic);
    write_run();
  }
  recorder_.start();
}

std::vector<std::string> RunReport::finish(const End& end) {
  std::vector<std::string> said = {recorder_.finish()};
  if (chief_) {
    run_.status = end.status;
    run_.digest = end.digest;
    run_.sample = end.sample;
    run_.steps_done = end.steps_done;
    run_.seconds = std::chrono::duration<double>(Tracer::Clock::now() - start_).count();
    if (end.steps_done > 0) {
      set_rows(run_, end.summary, /*measured=*/true);
      int64_t peak = -1;
      for (const RankMemory& rank : end.memory) peak = std::max(peak, rank[0]);
      run_.memory.push_back({"all", -1, peak});
    }
    write_run();
    if (!options_.report.empty()) said.push_back(write_report({options_.out_dir}, options_.report));
  }
  std::erase(said, "");
  return said;
}

void RunReport::abandon(const std::string& status) noexcept {
  try {
    recorder_.finish_alone();
    if (!chief_) return;
    run_.status = status;
    write_run();
    if (!options_.report.empty()) write_report({options_.out_dir}, options_.report);
  } catch (const std::exception&) {
    // The error that ended the run is the one to be heard.
  }
}

void RunReport::write_run() const { write_file(options_.out_dir + "/run.json", to_json(run_)); }

void set_rows(RunRecord& run, const RunSummary& summary, bool measured) {
  run.memory.clear();
  run.traffic.clear();
  for (const SummaryRow& row : summary.memory)
    run.memory.push_back({row.name, row.predicted, measured ? row.measured : -1});
  for (const SummaryRow& row : summary.traffic)
    run.traffic.push_back({row.name, row.predicted, measured ? row.measured : -1});
}

}  // namespace trencadis
