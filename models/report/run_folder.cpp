#include "models/report/run_folder.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/check.h"

namespace trencadis {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text;
  file.seekg(0, std::ios::end);
  const auto size = static_cast<int64_t>(file.tellg());
  if (size < 0) return std::nullopt;
  text.resize(static_cast<size_t>(size));
  file.seekg(0);
  file.read(text.data(), size);
  return text;
}

// The number behind `"key":` in a line, NaN if it is null or not there. Why not a JSON parser: with 64 ranks a line has
// kilobytes of lists that nobody draws, and there are 100,000 lines. No text in a metrics line holds a quoted key.
double number_after(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  if (at == std::string_view::npos) return kNone;
  const char* begin = line.data() + at + key.size();
  const char* const end = line.data() + line.size();
  while (begin < end && (*begin == ' ' || *begin == ':')) ++begin;
  double value = kNone;
  return std::from_chars(begin, end, value).ec == std::errc() ? value : kNone;
}

void drop_from(MetricsColumns& m, double step) {
  size_t keep = m.step.size();
  while (keep > 0 && m.step[keep - 1] >= step) --keep;
  for (auto* column : {&m.step, &m.loss, &m.val_loss, &m.lr, &m.grad_norm, &m.step_ms, &m.tokens_per_sec})
    column->resize(keep);
}

void read_run(RunFolder& folder) {
  const auto text = read_file(folder.path + "/run.json");
  if (!text) {
    folder.missing.push_back("There is no run.json: configuration, plan and sample are not known.");
    return;
  }
  try {
    folder.run = run_record_from_json(*text);
  } catch (const std::exception&) {
    folder.missing.push_back("run.json cannot be read: configuration, plan and sample are not known.");
    return;
  }
  if (folder.run->status == "running")
    folder.missing.push_back(
        "The run did not end properly, or is still going: what is measured at the end, and the sample, are missing.");
}

void read_metrics(RunFolder& folder) {
  std::string path = folder.path + "/metrics.jsonl";
  if (folder.run && folder.run->metrics.empty()) {
    folder.missing.push_back("The run was told to keep no metrics (--metrics off): there are no curves.");
    return;
  }
  auto text = read_file(path);
  if (!text && folder.run) text = read_file(path = folder.run->metrics);
  if (!text) {
    folder.missing.push_back("There is no metrics.jsonl: there are no curves.");
    return;
  }
  std::string complaint;
  folder.metrics = parse_metrics(*text, complaint);
  if (!complaint.empty()) folder.missing.push_back(complaint);
  if (folder.run && folder.run->status == "running" && !folder.metrics.step.empty())
    folder.missing.push_back(
        fmt::format("The last step that was recorded is {} of {}.", folder.metrics.step.back(), folder.run->max_steps));
}

void read_timeline(RunFolder& folder) {
  const auto text = read_file(folder.path + "/timeline.json");
  if (!text) {
    folder.missing.push_back(
        "There is no timeline.json: memory and lanes of one step are not known (it is written after step 4).");
    return;
  }
  try {
    const nlohmann::json json = nlohmann::json::parse(*text);
    folder.kept_step = json.at("step").get<int64_t>();
    for (const nlohmann::json& rank : json.at("ranks")) folder.ranks.push_back(timeline_from_json(rank.dump()));
  } catch (const std::exception&) {
    folder.ranks.clear();
    folder.missing.push_back("timeline.json cannot be read: memory and lanes of one step are not known.");
  }
}

}  // namespace

MetricsColumns parse_metrics(const std::string& text, std::string& complaint) {
  MetricsColumns m;
  std::string_view last_line;
  int64_t unreadable = 0;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line(text.data() + begin, end - begin);
    if (line.empty()) continue;
    const double step = number_after(line, "\"step\"");
    if (!(step >= 0) || line.front() != '{' || line.back() != '}') {
      ++unreadable;
      continue;
    }
    if (!m.step.empty() && step <= m.step.back()) drop_from(m, step);
    m.step.push_back(step);
    m.loss.push_back(number_after(line, "\"train/loss\""));
    m.val_loss.push_back(number_after(line.substr(0, 400), "\"val/loss\""));
    m.lr.push_back(number_after(line, "\"lr\""));
    m.grad_norm.push_back(number_after(line, "\"grad_norm\""));
    m.step_ms.push_back(number_after(line, "\"step_ms\""));
    m.tokens_per_sec.push_back(number_after(line, "\"tokens_per_sec\""));
    m.skipped += line.substr(0, 400).find("\"skipped\"") != std::string_view::npos;
    last_line = line;
  }
  if (begin < text.size()) complaint = "The last line of metrics.jsonl was cut off: it is left out.";
  if (unreadable > 0)
    complaint += fmt::format("{}{} lines of metrics.jsonl cannot be read.", complaint.empty() ? "" : " ", unreadable);
  if (m.step.empty() && complaint.empty()) complaint = "metrics.jsonl is empty: there are no curves.";
  const nlohmann::json last = nlohmann::json::parse(last_line, nullptr, /*allow_exceptions=*/false);
  if (last.is_object() && last.contains("mem_by_rank/peak_bytes") && last["mem_by_rank/peak_bytes"].is_array())
    for (const nlohmann::json& bytes : last["mem_by_rank/peak_bytes"])
      if (bytes.is_number()) m.peak_by_rank.push_back(bytes.get<int64_t>());
  return m;
}

double RunFolder::typical_step_ms() const {
  std::vector<double> times;
  for (size_t i = metrics.step_ms.size() / 2; i < metrics.step_ms.size(); ++i)
    if (std::isfinite(metrics.step_ms[i])) times.push_back(metrics.step_ms[i]);
  if (times.empty()) return kNone;
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

double RunFolder::last_loss() const { return metrics.loss.empty() ? kNone : metrics.loss.back(); }

RunFolder read_run_folder(const std::string& path) {
  if (!std::filesystem::is_directory(path))
    throw DataError(fmt::format("{} is no folder; give the --out-dir of a run", path));
  RunFolder folder;
  folder.path = path;
  read_run(folder);
  read_metrics(folder);
  read_timeline(folder);
  return folder;
}

std::vector<RunFolder> read_run_folders(const std::vector<std::string>& paths) {
  std::vector<RunFolder> folders;
  std::vector<std::filesystem::path> absolute;
  for (const std::string& path : paths) {
    folders.push_back(read_run_folder(path));
    std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
    absolute.push_back(whole.has_filename() ? whole : whole.parent_path());
  }
  // As many parts of the path, from its end, as tell the folders apart.
  for (int parts = 1; parts < 10; ++parts) {
    std::vector<std::string> names;
    for (const std::filesystem::path& path : absolute) {
      std::filesystem::path name = path.filename(), rest = path.parent_path();
      for (int i = 1; i < parts && rest.has_filename(); ++i, rest = rest.parent_path()) name = rest.filename() / name;
      names.push_back(name.string());
    }
    for (size_t i = 0; i < folders.size(); ++i) folders[i].name = names[i];
    std::sort(names.begin(), names.end());
    if (std::adjacent_find(names.begin(), names.end()) == names.end()) break;
  }
  return folders;
}

}  // namespace trencadis
