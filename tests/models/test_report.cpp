// The pieces of the report that a browser does not show well: escaping, thinning, axes, timelines, and when a recorder
// stops. The page itself: tests/models/report.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "dist/local/local_communicator.h"
#include "models/planner/plan_report.h"
#include "models/report/chrome_trace.h"
#include "models/report/metrics.h"
#include "models/report/page.h"
#include "models/report/recorder.h"
#include "models/report/run_report.h"
#include "models/report/svg.h"
#include "runtime/cpu/backend.h"
#include "temp_folder.h"

using namespace trencadis;
using namespace trencadis::test;

TEST_CASE("report: text is escaped, and what is no text becomes U+FFFD") {
  CHECK(escape("<script>\"'&") == "&lt;script&gt;&quot;&#39;&amp;");
  CHECK(escape("sí – 漢字 😀\n\t") == "sí – 漢字 😀\n\t");
  const std::string bad = "\xEF\xBF\xBD";
  CHECK(escape(std::string("a\0b", 3)) == "a" + bad + "b");
  CHECK(escape("\x1b[31m") == bad + "[31m");
  CHECK(escape("\xff\xc3") == bad + bad);            // no first byte; cut off
  CHECK(escape("\xc0\xaf") == bad + bad);            // overlong
  CHECK(escape("\xed\xa0\x80") == bad + bad + bad);  // a surrogate
  CHECK(escape_json("\"</script>\"") == "\"\\u003c/script>\"");
}

TEST_CASE("report: a thinned curve keeps every low and high, in order, and its gaps") {
  std::vector<double> x, y;
  for (int i = 0; i < 100'000; ++i) x.push_back(i), y.push_back(std::sin(i * 0.01));
  y[54'321] = 40;
  y[77'777] = -40;
  for (size_t i = 20'000; i < 30'000; ++i) y[i] = std::nan("");
  const Points points = thin_curve(x, y, 400);
  CHECK(points.x.size() <= 802);
  CHECK(std::is_sorted(points.x.begin(), points.x.end()));
  CHECK(std::count(points.y.begin(), points.y.end(), 40) == 1);
  CHECK(std::count(points.y.begin(), points.y.end(), -40) == 1);
  CHECK(std::any_of(points.y.begin(), points.y.end(), [](double v) { return std::isnan(v); }));
  const PlotAxis axis = {0, 100'000, 0, 500}, up = {-40, 40, 100, 0};
  const std::string d = path_through(points, axis, up, false);
  CHECK(std::count(d.begin(), d.end(), 'M') == 2);  // the pen is lifted over the gap
  CHECK(thin_curve({1, 2, 3}, {1, 2, 3}, 400).x.size() == 3);
  CHECK(thin_curve({}, {}, 400).x.empty());
}

TEST_CASE("report: axes have round numbers inside") {
  CHECK(PlotAxis{0, 10, 0, 100}.ticks(5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  CHECK(PlotAxis{3, 3, 0, 100}.ticks(5).size() == 1);
  CHECK(PlotAxis{0.5, 200, 0, 100, true}.ticks(5) == std::vector<double>{1, 10, 100});
  CHECK(PlotAxis{0, 10, 0, 100}.at(5) == doctest::Approx(50));
  CHECK(PlotAxis{1, 100, 0, 100, true}.at(10) == doctest::Approx(50));
  CHECK(significant(2.34567, 4) == "2.346");
  CHECK(significant(0, 4) == "0.000");
  CHECK(significant(std::nan(""), 4) == "–");
  CHECK(bytes_text(40'000'000) == "38.1 MiB");
}

TEST_CASE("report: metrics that were cut, broken or continued") {
  std::string complaint;
  const std::string line = R"({"step":1,"train/loss":2.5,"lr":0.1,"grad_norm":null,"step_ms":4,"tokens_per_sec":9})";
  MetricsColumns m = parse_metrics(line + "\n" + line.substr(0, 30), complaint);
  CHECK(m.step == std::vector<double>{1});
  CHECK(m.loss[0] == 2.5);
  CHECK(std::isnan(m.grad_norm[0]));
  CHECK(contains(complaint, "cut off"));
  // A run that was resumed writes steps 2 and 3 again: the later lines count.
  complaint.clear();
  std::string text;
  for (const int step : {1, 2, 3, 2, 3, 4})
    text += fmt::format("{{\"step\": {}, \"train/loss\": {}}}\n", step, text.size());
  m = parse_metrics(text, complaint);
  CHECK(m.step == std::vector<double>{1, 2, 3, 4});
  CHECK(std::is_sorted(m.loss.begin(), m.loss.end()));
  CHECK(complaint.empty());
  parse_metrics("nonsense\n", complaint);
  CHECK(contains(complaint, "cannot be read"));
}

TEST_CASE("report: a timeline survives its file, is cut to a step, and thinned without losing its peak") {
  Timeline t;
  t.lanes = {"compute"};
  t.names = {"step 3", "h.0 forward", "early"};
  t.spans = {{0, 2, 0, 90}, {0, 1, 120, 180}, {0, 0, 100, 200}};
  for (int64_t i = 0; i < 300; ++i) t.samples.push_back({i, {i == 151 ? 999 : i, 0, 0, 7, 0, 0}});
  const Timeline same = timeline_from_json(to_json(t));
  CHECK(to_json(same) == to_json(t));
  REQUIRE(same.find("step 3"));
  const Timeline step = same.between(100, 200);
  CHECK(step.spans.size() == 2);
  CHECK(step.samples.front().time == 100);
  CHECK(step.samples.front().live[0] == 100);
  CHECK(step.samples.back().time == 200);
  const auto few = thin(step.samples, 100, 200, 10);
  CHECK(few.size() <= 22);
  CHECK(std::any_of(few.begin(), few.end(), [](const auto& s) { return s.live[0] == 999; }));
  CHECK(few.back().time == 200);
  CHECK_THROWS(timeline_from_json("{\"lanes\":[],\"names\":[],\"spans\":[0,0,1,2],\"memory\":[]}"));
}

TEST_CASE("report: a trace stops at its bound and says so") {
  const TempFolder folder;
  Context context(make_cpu_backend());
  const auto world = make_local_communicator();
  Recorder recorder(context, *world, folder.path("."), folder.path("trace.json"), 10, /*most_events=*/40);
  recorder.start();
  for (int step = 1; step <= 10; ++step) {
    recorder.begin_step();
    for (int i = 0; i < 9; ++i) context.compute_stream().enqueue("work", [] {});
    recorder.end_step(step);
  }
  CHECK(contains(recorder.finish(), "stops after about 40 events"));
  std::ifstream file(folder.path("trace.json"));
  const nlohmann::json trace = nlohmann::json::parse(file);
  CHECK(contains(trace["otherData"]["note"].get<std::string>(), "before the run's end"));
  CHECK(trace["traceEvents"].size() <= 42);
  CHECK(trace["traceEvents"].size() >= 30);
  CHECK_FALSE(context.tracer().on());
  CHECK(std::filesystem::exists(folder.path("timeline.json")));
}

namespace {

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("report: links and pipes are written to and stay; other files are replaced") {
  const TempFolder folder;
  const std::string target = folder.write("target", "a longer text than the next"), link = folder.path("link");
  std::filesystem::create_symlink(target, link);
  write_file(link, "by link");
  CHECK(std::filesystem::is_symlink(link));
  CHECK(content(target) == "by link");

  const std::string fifo = folder.path("fifo");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  write_file(fifo, "by pipe");
  char text[32] = {};
  CHECK(read(reader, text, sizeof text) == 7);
  CHECK(std::string(text) == "by pipe");
  close(reader);
  CHECK(std::filesystem::is_fifo(fifo));

  write_file(target, "replaced");
  CHECK(content(link) == "replaced");
  write_file("/dev/null", "nothing");
  CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("report: the start of a run finds out what cannot be written and changes nothing") {
  const TempFolder folder;
  Context context(make_cpu_backend());
  const auto world = make_local_communicator();
  RunReportOptions options;
  options.out_dir = folder.path("out");
  const auto start = [&](const std::string& report, const std::string& trace) {
    options.report = report;
    options.trace = trace;
    RunReport run(options, context, *world, 3);
  };
  const std::string fifo = folder.path("fifo"), link = folder.path("link"), old = folder.write("old", "of before");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  std::filesystem::create_symlink(old, link);
  start(fifo, link);  // no reader: a pipe that were opened would block
  start(old, "/dev/null");
  start(folder.path("new"), folder.path("deep/new"));
  CHECK(std::filesystem::is_fifo(fifo));
  CHECK(std::filesystem::is_symlink(link));
  CHECK(content(old) == "of before");
  for (const char* name : {"new", "deep/new", "old.part", "new.part", "fifo.part"})
    CHECK_FALSE(std::filesystem::exists(folder.path(name)));
  CHECK(contains(error_of<DataError>([&] { start(folder.path("out"), ""); }), "is a folder"));
  CHECK(contains(error_of<DataError>([&] { start(folder.path("old/report.html"), ""); }), "cannot write"));
}

TEST_CASE("plan: state for Adam, and in a line for SGD with momentum") {
  PlanRequest request;
  request.world = 8;
  request.parameters = 7'000'000'000;
  const std::string text = plan_report(request);
  CHECK(contains(text, "Adam (2 optimizer states an element)"));
  // 4 bytes each of parameter, gradient and momentum: 12, 8 + 4/8, 4 + 8/8, 12/8 bytes an element.
  CHECK(contains(text, "SGD with momentum (1 optimizer state): a state of 84 GB, 59.5 GB, 35 GB, 10.5 GB in stages"));
}

TEST_CASE("progress: the bar's line fits the terminal and tells the time left") {
  StepRecord record;
  record.step = 12;
  record.loss = 2.34567;
  record.step_seconds = 0.0412;
  record.tokens = 1024;
  CHECK(bar_line(record, 24, 41, 200) ==
        "[============            ] 12/24 | 0:41 left | loss 2.3457 | 41.2 ms | 24854 tok/s");
  CHECK(contains(bar_line(record, 24, 3 * 3600 + 62, 200), "3:01:02 left"));
  CHECK(bar_line(record, 24, 41, 40).size() == 39);
}
