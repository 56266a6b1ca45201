#include "models/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace trencadis {

namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  bool any() const { return low <= high; }
  void include(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

std::string numbers(const std::vector<double>& values) {
  std::string text = "[";
  for (const double value : values) {
    if (text.size() > 1) text += ',';
    text += std::isfinite(value) ? fmt::format("{:.6g}", value) : "null";
  }
  return text + "]";
}

std::string legend(const Chart& chart) {
  if (chart.curves.size() < 2) return "";  // the title says it
  std::string html = "<ul class=\"legend\">";
  for (const Curve& curve : chart.curves) {
    if (!curve.listed) continue;
    html += fmt::format(
        "<li><svg class=\"key\" viewBox=\"0 0 22 8\" aria-hidden=\"true\"><path class=\"curve c{}{}\" d=\"M1 4H21\"/>"
        "{}</svg>{}</li>",
        curve.colour, curve.dashed ? " dashed" : "",
        curve.marks ? fmt::format("<circle class=\"mark c{}\" cx=\"11\" cy=\"4\" r=\"3\"/>", curve.colour) : "",
        escape(curve.name));
  }
  return html + "</ul>";
}

// What report.js reads: where the plot lies, and every number that is drawn.
std::string data_of(const Chart& chart, const PlotAxis& x, const PlotAxis& y) {
  std::string json = fmt::format(
      R"({{"plot":[{},{},{},{}],"x":[{:.9g},{:.9g}],"y":[{:.9g},{:.9g}],"log":{},"bytes":{},"steps":{},"x_label":{},"curves":[)",
      px(x.from), px(x.to), px(y.to), px(y.from), x.low, x.high, y.low, y.high, y.logarithmic, chart.bytes, chart.steps,
      nlohmann::json(chart.x_label).dump());
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    const Curve& curve = chart.curves[i];
    const std::string name = nlohmann::json(curve.name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    json += fmt::format(R"({}{{"name":{},"colour":{},"x":{},"y":{}}})", i ? "," : "", name, curve.colour,
                        numbers(curve.points.x), numbers(curve.points.y));
  }
  return "<script type=\"application/json\" class=\"data\">" + escape_json(json + "]}") + "</script>";
}

}  // namespace

std::string draw_axes(const PlotAxis& x, const PlotAxis& y, const std::string& x_label, double unit_size) {
  std::string svg = "<g class=\"axes\">";
  PlotAxis shown = y;  // in units, whose round numbers are wanted
  shown.low /= unit_size;
  shown.high /= unit_size;
  for (const double tick : shown.ticks(5)) {
    const std::string at = px(shown.at(tick));
    svg += fmt::format("<path d=\"M{} {}H{}\"/><text class=\"y\" x=\"{}\" y=\"{}\" dy=\".32em\">{}</text>", px(x.from),
                       at, px(x.to), px(x.from - 7), at, count_text(tick));
  }
  for (const double tick : x.ticks(6))
    svg += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>", px(x.at(tick)), px(y.from + 17), count_text(tick));
  svg += fmt::format("<path class=\"base\" d=\"M{} {}H{}\"/>", px(x.from), px(y.from), px(x.to));
  svg +=
      fmt::format("<text class=\"label\" x=\"{}\" y=\"{}\">{}</text></g>", px(x.to), px(y.from + 33), escape(x_label));
  return svg;
}

std::string draw(const Chart& chart) {
  Range xs, ys;
  bool positive = true;
  for (const Curve& curve : chart.curves)
    for (size_t i = 0; i < curve.points.x.size(); ++i) {
      if (!std::isfinite(curve.points.y[i])) continue;
      xs.include(curve.points.x[i]);
      ys.include(curve.points.y[i]);
      positive = positive && curve.points.y[i] > 0;
    }
  if (!xs.any())
    return fmt::format(
        "<figure class=\"chart\"><figcaption>{}</figcaption><p class=\"missing\">No numbers.</p></figure>",
        escape(chart.title));
  PlotAxis x = {xs.low, xs.high, 58, chart.width - 12};
  PlotAxis y = {chart.from_zero ? std::min(0.0, ys.low) : ys.low, ys.high, chart.height - 42, 14};
  y.logarithmic = chart.logarithmic && positive;
  const double margin = y.logarithmic ? 1 : 0.04 * (y.high - y.low);
  y.high = y.logarithmic ? y.high * 1.1 : y.high + margin;
  if (y.logarithmic)
    y.low /= 1.1;
  else if (!chart.from_zero)
    y.low -= margin;
  if (y.high <= y.low) y.high = y.low + std::max(1e-9, std::fabs(y.low) * 0.1), y.low -= std::fabs(y.low) * 0.1;
  if (x.high <= x.low) x.low -= 0.5, x.high += 0.5;

  const ByteUnit unit = chart.bytes ? byte_unit(y.high) : ByteUnit{chart.unit, 1};
  std::string svg = fmt::format(
      "<figure class=\"chart\"><figcaption>{} <span>{}{}</span></figcaption><svg viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"{}\">",
      escape(chart.title), escape(unit.name), y.logarithmic ? ", logarithmic" : "", chart.width, chart.height,
      escape(chart.title));
  svg += draw_axes(x, y, chart.x_label, unit.size);
  std::vector<std::string> paths;
  for (const Curve& curve : chart.curves) paths.push_back(path_through(curve.points, x, y, chart.steps));
  for (size_t i = 0; i < paths.size(); ++i) {
    const Curve& curve = chart.curves[i];
    // Of equal curves (one run in several stages) each earlier one is wider, so that all are seen.
    const auto covering = std::count(paths.begin() + static_cast<int64_t>(i) + 1, paths.end(), paths[i]);
    if (!paths[i].empty())
      svg += fmt::format(
          "<path class=\"curve c{}{}\"{} d=\"{}\"><title>{}</title></path>", curve.colour,
          curve.dashed ? " dashed" : "",
          covering > 0 ? fmt::format(" style=\"stroke-width:{}\"", px(1.6 + 2.4 * static_cast<double>(covering))) : "",
          paths[i], escape(curve.name));
    if (curve.points.x.size() > 200 || !(curve.marks || curve.points.x.size() == 1)) continue;
    for (size_t k = 0; k < curve.points.x.size(); ++k)
      if (std::isfinite(curve.points.y[k]) && !(y.logarithmic && curve.points.y[k] <= 0))
        svg += fmt::format("<circle class=\"mark c{}\" cx=\"{}\" cy=\"{}\" r=\"3\"/>", curve.colour,
                           px(x.at(curve.points.x[k])), px(y.at(curve.points.y[k])));
  }
  svg += "</svg>" + legend(chart) + data_of(chart, x, y) + "</figure>\n";
  return svg;
}

}  // namespace trencadis
