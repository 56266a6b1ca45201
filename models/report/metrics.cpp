#include "models/report/metrics.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/check.h"

namespace trencadis {

namespace {

// The lines of steps up to `steps`, of a file that may end in the middle of one.
std::string kept_lines(const std::string& path, int64_t steps) {
  std::ifstream file(path, std::ios::binary);
  std::string kept, line;
  while (std::getline(file, line)) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    if (json["step"].get<int64_t>() <= steps) kept += line + "\n";
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, int64_t kept_steps) : path_(path) {
  if (kept_steps > 0) {
    // Under another name first: a run that dies here loses no record.
    const std::string shorter = path + ".new";
    std::ofstream(shorter, std::ios::binary) << kept_lines(path, kept_steps);
    std::rename(shorter.c_str(), path.c_str());
  }
  file_ = std::fopen(path.c_str(), kept_steps > 0 ? "a" : "w");
  if (!file_)
    throw DataError(fmt::format("cannot write metrics to {}: {}; choose another --out-dir or --metrics off", path,
                                std::strerror(errno)));
}

MetricsFile::~MetricsFile() { std::fclose(file_); }

void MetricsFile::write(const StepRecord& r) {
  using nlohmann::ordered_json;
  // JSON has no NaN; null says that there is no such number.
  const auto number = [](double x) { return std::isfinite(x) ? ordered_json(x) : ordered_json(nullptr); };
  ordered_json line;
  line["step"] = r.step;
  line["train/loss"] = number(r.loss);
  if (r.val_loss) line["val/loss"] = number(*r.val_loss);
  line["lr"] = r.lr;
  line["grad_norm"] = number(r.grad_norm);
  line["tokens_per_sec"] = static_cast<double>(r.tokens) / std::max(1e-9, r.step_seconds);
  line["step_ms"] = 1e3 * r.step_seconds;
  line["tokens_seen"] = r.tokens_seen;
  if (r.skipped) line["skipped"] = true;
  for (size_t i = 0; i < 1 + kMemoryCategories; ++i) {
    const std::string name =
        i == 0 ? "peak_bytes" : fmt::format("{}_bytes", name_of(static_cast<MemoryCategory>(i - 1)));
    std::vector<int64_t> by_rank;
    for (const RankMemory& rank : r.memory) by_rank.push_back(rank[i]);
    line["mem/" + name] = by_rank.empty() ? 0 : *std::max_element(by_rank.begin(), by_rank.end());
    line["mem_by_rank/" + name] = by_rank;
  }
  for (CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather}) {
    const CommCounters::Count& count = r.comm.at(Traffic::training, kind);
    line[fmt::format("comm/{}_calls", name_of(kind))] = count.calls;
    line[fmt::format("comm/{}_bytes", name_of(kind))] = count.bytes_sent;
  }
  const std::string text = line.dump() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0)
    throw DataError(fmt::format("cannot write metrics to {}: {}", path_, std::strerror(errno)));
}

std::string format_bytes(int64_t bytes) {
  const double b = static_cast<double>(bytes);
  if (b >= 1024.0 * 1024 * 1024) return fmt::format("{:.2f} GiB", b / (1024.0 * 1024 * 1024));
  if (b >= 1024.0 * 1024) return fmt::format("{:.1f} MiB", b / (1024.0 * 1024));
  return fmt::format("{:.1f} KiB", b / 1024);
}

std::string step_line(const StepRecord& r, int64_t max_steps) {
  int64_t peak = 0;
  for (const RankMemory& rank : r.memory) peak = std::max(peak, rank[0]);
  std::string line =
      fmt::format("step {}/{} | loss {:.4f} | norm {:.2f} | lr {:.1e} | {:.1f} ms | {:.0f} tok/s | mem {}", r.step,
                  max_steps, r.loss, r.grad_norm, r.lr, 1e3 * r.step_seconds,
                  static_cast<double>(r.tokens) / std::max(1e-9, r.step_seconds), format_bytes(peak));
  if (r.val_loss) line += fmt::format(" | val {:.4f}", *r.val_loss);
  if (r.skipped) line += " | SKIPPED: not finite";
  return line;
}

namespace {

std::string clock_text(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

int terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string bar_line(const StepRecord& r, int64_t max_steps, double seconds_left, int columns) {
  constexpr int kWidth = 24;
  const int done = static_cast<int>(kWidth * std::min(r.step, max_steps) / std::max<int64_t>(1, max_steps));
  std::string line = fmt::format("[{:=<{}}{: <{}}] {}/{} | {} left | loss {:.4f} | {:.1f} ms | {:.0f} tok/s", "", done,
                                 "", kWidth - done, r.step, max_steps, clock_text(seconds_left), r.loss,
                                 1e3 * r.step_seconds, static_cast<double>(r.tokens) / std::max(1e-9, r.step_seconds));
  if (columns > 0 && static_cast<int>(line.size()) >= columns) line.resize(static_cast<size_t>(columns - 1));
  return line;
}

Progress::Progress(const std::string& mode, int64_t max_steps, bool under_mpirun) : max_steps_(max_steps) {
  const bool terminal = isatty(STDOUT_FILENO) != 0 && !under_mpirun;
  mode_ = mode == "off" ? Mode::off : mode == "bar" || (mode == "auto" && terminal) ? Mode::bar : Mode::plain;
}

void Progress::step(const StepRecord& r) {
  if (mode_ == Mode::off) return;
  smoothed_seconds_ = shown_ == 0 ? r.step_seconds : 0.9 * smoothed_seconds_ + 0.1 * r.step_seconds;
  ++shown_;
  const auto now = std::chrono::steady_clock::now();
  const bool last = r.step == max_steps_;
  const double since = std::chrono::duration<double>(now - last_).count();
  // A line for what must not be missed; otherwise as many as can be read.
  const bool due = shown_ <= 10 || last || r.val_loss || r.skipped || since >= (mode_ == Mode::bar ? 0.1 : 2.0);
  if (!due) return;
  last_ = now;
  if (mode_ == Mode::plain) {
    fmt::print("{}\n", step_line(r, max_steps_));
  } else {
    const double left = smoothed_seconds_ * static_cast<double>(max_steps_ - r.step);
    fmt::print("\r{}\033[K", bar_line(r, max_steps_, left, terminal_columns()));
    bar_drawn_ = true;
    if (r.val_loss || last || r.skipped) {
      bar_drawn_ = false;  // the whole line takes its place, and stays
      fmt::print("\r{}\033[K\n", step_line(r, max_steps_));
    }
  }
  std::fflush(stdout);
}

void Progress::note(const std::string& line) {
  if (mode_ == Mode::off) return;
  if (bar_drawn_) fmt::print("\n");
  bar_drawn_ = false;
  if (!line.empty()) fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace trencadis
