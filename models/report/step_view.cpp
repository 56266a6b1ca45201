#include "models/report/step_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "models/report/chart.h"

namespace trencadis {

namespace {

constexpr double kWidth = 1000, kLeft = 74, kRight = 14, kMemoryTop = 12, kMemoryBottom = 232, kFirstLane = 246,
                 kLaneHeight = 22, kLaneGap = 5;

// How a span is drawn, by its name: the class in report.css.
struct Kind {
  const char* css;
  const char* title;
};
constexpr Kind kForward = {"f", "forward"}, kBackward = {"b", "backward"}, kOptimizer = {"o", "optimizer"},
               kGather = {"g", "gather parameters"}, kReduce = {"r", "reduce gradients"}, kWait = {"w", "waiting"},
               kOther = {"x", "other"}, kFrame = {"m", ""};

const Kind& kind_of(const std::string& name) {
  if (name.starts_with("wait ")) return kWait;
  if (name.starts_with("micro-batch ")) return kFrame;
  if (name.ends_with(" forward")) return kForward;
  if (name.ends_with(" backward")) return kBackward;
  if (name.ends_with(" optimizer")) return kOptimizer;
  const bool of_gradients = name.find(" gradients of ") != std::string::npos;
  if (name.starts_with("all_gather ") && name.find(" parameters of ") != std::string::npos) return kGather;
  if (of_gradients) return kReduce;
  return kOther;
}

// What fits into a box: the unit ("h.3" of "all_gather parameters of h.3", of "h.3 forward").
std::string short_name(const std::string& name, const Kind& kind) {
  if (const size_t of = name.rfind(" of "); of != std::string::npos) return name.substr(of + 4);
  if (&kind == &kForward || &kind == &kBackward || &kind == &kOptimizer) return name.substr(0, name.rfind(' '));
  return name;
}

double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

std::string draw_areas(const std::vector<Timeline::Sample>& samples, int64_t begin, int64_t end, const PlotAxis& x,
                       const PlotAxis& y) {
  // From the sum of all categories down: each area covers the part of the one before that is not its own.
  std::string svg;
  for (int c = kMemoryCategories - 1; c >= 0; --c) {
    Points points;
    bool any = false;
    for (const Timeline::Sample& sample : samples) {
      int64_t below = 0;
      for (int i = 0; i <= c; ++i) below += sample.live[static_cast<size_t>(i)];
      any |= sample.live[static_cast<size_t>(c)] > 0;
      points.x.push_back(ms(std::max(sample.time, begin) - begin));
      points.y.push_back(static_cast<double>(below));
    }
    if (!any) continue;
    points.x.push_back(ms(end - begin));
    points.y.push_back(points.y.back());
    svg += fmt::format("<path class=\"area m{}\" d=\"{}V{}H{}Z\"/>", c, path_through(points, x, y, true), px(y.from),
                       px(x.at(points.x.front())));
  }
  return svg;
}

// Merges neighbours of one kind that are less than `gap` apart and shorter than that, until few enough are left.
std::vector<Timeline::Span> simplified(const Timeline& t, std::vector<Timeline::Span> spans, int most) {
  std::sort(spans.begin(), spans.end(), [](const Timeline::Span& a, const Timeline::Span& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  for (int64_t gap = 1000; static_cast<int>(spans.size()) > most && gap < int64_t{1} << 40; gap *= 2) {
    std::vector<Timeline::Span> kept;
    for (const Timeline::Span& span : spans) {
      if (!kept.empty() && kept.back().lane == span.lane && span.begin - kept.back().end < gap &&
          span.end - span.begin < gap && &kind_of(t.name_of(kept.back())) == &kind_of(t.name_of(span)))
        kept.back().end = std::max(kept.back().end, span.end);
      else
        kept.push_back(span);
    }
    spans = std::move(kept);
  }
  return spans;
}

std::string draw_spans(const Timeline& t, const std::vector<Timeline::Span>& spans, int64_t begin, int64_t end,
                       const PlotAxis& x, const std::vector<int>& row_of_lane) {
  std::string svg;
  for (const Timeline::Span& span : spans) {
    const std::string& name = t.name_of(span);
    const Kind& kind = kind_of(name);
    const double top = kFirstLane + row_of_lane[static_cast<size_t>(span.lane)] * (kLaneHeight + kLaneGap);
    const double from = x.at(ms(std::max(span.begin, begin) - begin)), to = x.at(ms(std::min(span.end, end) - begin));
    const std::string title =
        fmt::format("{}: {:.3f} ms, from {:.3f} ms", escape(name), ms(span.end - span.begin), ms(span.begin - begin));
    if (&kind == &kFrame) {
      svg += fmt::format("<path class=\"m\" d=\"M{0} {1}v-3H{2}v3\"><title>{3}</title></path>", px(from + 0.5),
                         px(top - 1), px(to - 0.5), title);
      continue;
    }
    svg += fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}</title></rect>",
                       kind.css, px(from), px(top), px(std::max(0.4, to - from)), px(kLaneHeight), title);
    const std::string label = short_name(name, kind);
    if (to - from > 6.2 * static_cast<double>(label.size()) + 4 && &kind != &kWait)
      svg += fmt::format("<text class=\"in {}\" x=\"{}\" y=\"{}\">{}</text>", kind.css, px((from + to) / 2),
                         px(top + kLaneHeight / 2 + 4), escape(label));
  }
  return svg;
}

// The numbers that are drawn, for report.js.
std::string data_of(const std::vector<Timeline::Sample>& samples, int64_t begin, const PlotAxis& x, const PlotAxis& y) {
  std::string times, live[kMemoryCategories];
  for (const Timeline::Sample& sample : samples) {
    const char* comma = times.empty() ? "" : ",";
    times += fmt::format("{}{:.3f}", comma, ms(std::max(sample.time, begin) - begin));
    for (size_t c = 0; c < kMemoryCategories; ++c) live[c] += fmt::format("{}{}", comma, sample.live[c]);
  }
  std::string json = fmt::format(R"({{"plot":[{},{},{},{}],"x":[0,{:.6g}],"y":[0,{}],"t":[{}],"live":[)", px(x.from),
                                 px(x.to), px(y.to), px(y.from), x.high, static_cast<int64_t>(y.high), times);
  for (size_t c = 0; c < kMemoryCategories; ++c) json += (c ? ",[" : "[") + live[c] + "]";
  return "<script type=\"application/json\" class=\"data\">" + json + "]}</script>";
}

}  // namespace

bool step_bounds(const Timeline& timeline, int64_t step, int64_t& begin, int64_t& end) {
  const Timeline::Span* span = timeline.find(fmt::format("step {}", step));
  if (!span || span->end <= span->begin) return false;
  begin = span->begin;
  end = span->end;
  return true;
}

std::string draw(const StepView& view) {
  const Timeline& t = *view.timeline;
  int64_t begin = 0, end = 0;
  if (!step_bounds(t, view.step, begin, end)) return "<p class=\"missing\">Nothing was recorded on this rank.</p>";
  // Lanes in the order in which they are read; others behind.
  std::vector<std::string> order = {"compute", "gather", "reduce"};
  for (const std::string& lane : t.lanes)
    if (std::find(order.begin(), order.end(), lane) == order.end()) order.push_back(lane);
  std::erase_if(
      order, [&](const std::string& lane) { return std::find(t.lanes.begin(), t.lanes.end(), lane) == t.lanes.end(); });
  std::vector<int> row_of_lane;
  for (const std::string& lane : t.lanes)
    row_of_lane.push_back(static_cast<int>(std::find(order.begin(), order.end(), lane) - order.begin()));
  const double lanes_end = kFirstLane + static_cast<double>(order.size()) * (kLaneHeight + kLaneGap);

  const PlotAxis x = {0, view.milliseconds, kLeft, kWidth - kRight};
  const PlotAxis y = {0, static_cast<double>(std::max<int64_t>(1, view.most_bytes)) * 1.04, kMemoryBottom, kMemoryTop};
  const ByteUnit unit = byte_unit(y.high);
  std::string svg = fmt::format(
      "<figure class=\"step\"><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"Live memory and lanes of step "
      "{}\">",
      kWidth, px(lanes_end + 36), view.step);
  const std::vector<Timeline::Sample> samples = thin(t.samples, begin, end, view.bins);
  svg += "<g class=\"axes\">";
  PlotAxis shown = y;
  shown.low /= unit.size;
  shown.high /= unit.size;
  for (const double tick : shown.ticks(5))
    svg += fmt::format("<path d=\"M{} {}H{}\"/><text class=\"y\" x=\"{}\" y=\"{}\" dy=\".32em\">{}</text>", px(x.from),
                       px(shown.at(tick)), px(x.to), px(x.from - 7), px(shown.at(tick)), count_text(tick));
  svg += fmt::format("<text class=\"label\" x=\"{}\" y=\"{}\" transform=\"rotate(-90 14 {})\">live, {}</text>", 14.0,
                     px(kMemoryTop), px(kMemoryTop), unit.name);
  for (const double tick : x.ticks(10))
    svg += fmt::format("<path d=\"M{0} {1}v4\"/><text x=\"{0}\" y=\"{2}\">{3}</text>", px(x.at(tick)), px(lanes_end),
                       px(lanes_end + 17), count_text(tick));
  svg += fmt::format("<path class=\"base\" d=\"M{0} {1}H{2}\"/><path class=\"base\" d=\"M{0} {3}H{2}\"/>", px(x.from),
                     px(kMemoryBottom), px(x.to), px(lanes_end));
  svg += fmt::format("<text class=\"label\" x=\"{}\" y=\"{}\">milliseconds since the step began</text>", px(x.to),
                     px(lanes_end + 32));
  for (size_t row = 0; row < order.size(); ++row)
    svg += fmt::format("<text class=\"y\" x=\"{}\" y=\"{}\" dy=\".32em\">{}</text>", px(x.from - 7),
                       px(kFirstLane + static_cast<double>(row) * (kLaneHeight + kLaneGap) + kLaneHeight / 2),
                       escape(order[row]));
  svg += "</g>" + draw_areas(samples, begin, end, x, y);
  if (view.planned_bytes > 0)
    svg += fmt::format(
        "<path class=\"plan\" d=\"M{0} {1}H{2}\"><title>plan: {3}</title></path>"
        "<text class=\"plan\" x=\"{2}\" y=\"{4}\">plan {3}</text>",
        px(x.from), px(y.at(static_cast<double>(view.planned_bytes))), px(x.to), bytes_text(view.planned_bytes),
        px(y.at(static_cast<double>(view.planned_bytes)) - 4));
  std::vector<Timeline::Span> spans;
  for (const Timeline::Span& span : t.spans)
    if (span.begin < end && span.end > begin && !t.name_of(span).starts_with("step ")) spans.push_back(span);
  svg += "<g class=\"lanes\">" +
         draw_spans(t, simplified(t, std::move(spans), view.spans), begin, end, x, row_of_lane) + "</g></svg>";
  return svg + data_of(samples, begin, x, y) + "</figure>\n";
}

std::string step_legend() {
  static constexpr const char* names[] = {"parameters",  "gradients",     "optimizer state",
                                          "activations", "communication", "workspace"};
  std::string html = "<ul class=\"legend\"><li>memory:</li>";
  for (int c = 0; c < kMemoryCategories; ++c) html += fmt::format("<li><i class=\"m{}\"></i>{}</li>", c, names[c]);
  html += "</ul><ul class=\"legend\"><li>lanes:</li>";
  for (const Kind* kind : {&kForward, &kBackward, &kOptimizer, &kGather, &kReduce, &kWait, &kOther})
    html += fmt::format("<li><i class=\"{}\"></i>{}</li>", kind->css, kind->title);
  return html + "</ul>";
}

}  // namespace trencadis
