#include "models/report/chrome_trace.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "runtime/check.h"

namespace trencadis {

namespace {

// A JSON string, quotes included.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Lines into a file; complains once, at the end.
class Lines {
 public:
  explicit Lines(const std::string& path, const char* mode = "w")
      : path_(path), file_(std::fopen(path.c_str(), mode), &std::fclose) {
    check(file_ != nullptr);
  }
  void write(const std::string& text) { check(std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size()); }
  void flush() { check(std::fflush(file_.get()) == 0); }

 private:
  void check(bool good) const {
    if (!good) throw DataError(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

// A name for a file, or for none yet: no link, device or pipe, which a rename would put a file in the place of.
bool replaceable(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::symlink_status(path, error);
  return !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
}

double microseconds(int64_t ns) { return static_cast<double>(ns) / 1e3; }

}  // namespace

void write_file(const std::string& path, const std::string& text) {
  std::error_code error;
  if (!replaceable(path)) {
    Lines file(path);
    file.write(text);
    file.flush();
    return;
  }
  const std::string unfinished = path + ".part";
  {
    Lines file(unfinished);
    file.write(text);
    file.flush();
  }
  std::filesystem::rename(unfinished, path, error);
  if (error) throw DataError(fmt::format("cannot write {}: {}", path, error.message()));
}

void check_writable(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw DataError(fmt::format("cannot write {}: is a folder", path));
  if (!replaceable(path)) return;  // opening a pipe and closing it would be the end of what its reader sees
  if (std::filesystem::exists(path, error)) Lines(path, "a");
  const std::string unfinished = path + ".part";
  Lines(unfinished, "w");
  std::filesystem::remove(unfinished, error);
}

void write_chrome_trace(const std::string& path, const std::vector<Timeline>& by_rank, int first_rank,
                        const std::string& note) {
  Lines file(path);
  file.write("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"note\":" + quoted(note) + "},\"traceEvents\":[\n");
  for (size_t r = 0; r < by_rank.size(); ++r) {
    const Timeline& timeline = by_rank[r];
    const int pid = first_rank + static_cast<int>(r);
    std::vector<std::string> names;
    for (const std::string& name : timeline.names) names.push_back(quoted(name));
    for (size_t lane = 0; lane < timeline.lanes.size(); ++lane)
      file.write(
          fmt::format("{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}},\n",
                      pid, lane, quoted(timeline.lanes[lane])));
    for (const Timeline::Span& s : timeline.spans)
      file.write(fmt::format("{{\"ph\":\"X\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f}}},\n",
                             names[static_cast<size_t>(s.name)], pid, s.lane, microseconds(s.begin),
                             microseconds(s.end - s.begin)));
    for (const Timeline::Sample& s : timeline.samples) {
      std::string live;
      for (int c = 0; c < kMemoryCategories; ++c)
        live += fmt::format("{}\"{}\":{}", c ? "," : "", name_of(static_cast<MemoryCategory>(c)),
                            s.live[static_cast<size_t>(c)]);
      file.write(fmt::format("{{\"ph\":\"C\",\"name\":\"live bytes\",\"pid\":{},\"ts\":{:.3f},\"args\":{{{}}}}},\n",
                             pid, microseconds(s.time), live));
    }
    file.write(
        fmt::format("{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":\"rank {}\"}}}}{}\n", pid,
                    pid, r + 1 < by_rank.size() ? "," : ""));
  }
  file.write("]}\n");
  file.flush();
}

}  // namespace trencadis
