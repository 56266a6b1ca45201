// run.json: what a run is, what was predicted for it, and how it ended. Written at the start and again at the end, so
// that a run that crashed has one too, with status "running".
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trencadis {

struct RunRecord {
  struct Row {
    std::string name;                       // "gradients", "all_gather"
    int64_t predicted = -1, measured = -1;  // bytes; -1: not known
  };

  std::string status = "running";  // "finished", "stopped by signal 15", "diverged"
  std::string version, started;    // of the program; UTC
  std::string data, model;         // what the run said of them
  std::string metrics;             // path; empty: none was kept
  int world = 1;
  int64_t parameters = 0, max_steps = 0, steps_done = 0;
  double seconds = 0;
  std::vector<std::pair<std::string, std::string>> config;
  std::vector<Row> memory;   // peak of a rank inside a step: the largest over ranks
  std::vector<Row> traffic;  // sent by rank 0 in the last step
  std::string digest, sample;

  // -1 where there is no such row or number.
  int64_t measured(const std::string& name) const;
  int64_t predicted(const std::string& name) const;
  std::string setting(const std::string& key) const;  // "" where it is not there
};

std::string to_json(const RunRecord& run);
// Throws std::exception where the text is not what to_json wrote.
RunRecord run_record_from_json(const std::string& text);

}  // namespace trencadis
