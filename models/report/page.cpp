#include "models/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/report/chart.h"
#include "models/report/chrome_trace.h"
#include "models/report/step_view.h"

namespace trencadis {

namespace {

constexpr int kCurveBins = 400;

Points finite_only(const std::vector<double>& x, const std::vector<double>& y) {
  Points points;
  for (size_t i = 0; i < x.size(); ++i)
    if (std::isfinite(y[i])) points.x.push_back(x[i]), points.y.push_back(y[i]);
  return points;
}

std::string header(const std::vector<RunFolder>& runs) {
  std::string html = "<header><h1>";
  for (size_t r = 0; r < runs.size(); ++r) html += (r ? ", " : "") + escape(runs[r].name);
  html += "</h1>";
  if (runs.size() == 1 && runs[0].run) {
    const RunRecord& run = *runs[0].run;
    html += fmt::format("<p class=\"facts\">{}<br>{}<br>{} · started {} · {}{}</p>", escape(run.model),
                        escape(run.data), escape(run.version), escape(run.started), escape(run.status),
                        run.seconds > 0 ? fmt::format(" after {} s", significant(run.seconds, 3)) : "");
  }
  for (const RunFolder& folder : runs)
    for (const std::string& sentence : folder.missing)
      html += fmt::format("<p class=\"missing\">{}{}</p>", runs.size() > 1 ? escape(folder.name) + ": " : "",
                          escape(sentence));
  return html + "</header>\n";
}

std::string curves(const std::vector<RunFolder>& runs) {
  const auto chart = [&](std::string title, std::string unit, std::vector<double> MetricsColumns::*column) {
    Chart c;
    c.title = std::move(title);
    c.unit = std::move(unit);
    c.x_label = "step";
    for (size_t r = 0; r < runs.size(); ++r)
      c.curves.push_back({runs.size() > 1 ? runs[r].name : c.title, static_cast<int>(r % 8),
                          thin_curve(runs[r].metrics.step, runs[r].metrics.*column, kCurveBins), r >= 8});
    return c;
  };
  Chart loss = chart("training loss", "nats per token", &MetricsColumns::loss);
  for (size_t r = 0; r < runs.size(); ++r) {
    const Points validation = finite_only(runs[r].metrics.step, runs[r].metrics.val_loss);
    if (validation.x.empty()) continue;
    loss.title = "training and validation loss";
    if (runs.size() > 1) loss.unit = "nats per token; dashed: validation";
    loss.curves.push_back({runs.size() > 1 ? runs[r].name + ", validation" : "validation loss",
                           runs.size() > 1 ? static_cast<int>(r % 8) : 1,
                           thin_curve(validation.x, validation.y, kCurveBins), true, true, runs.size() == 1});
  }
  Chart norm = chart("gradient norm", "before clipping", &MetricsColumns::grad_norm);
  norm.logarithmic = true;
  Chart lr = chart("learning rate", "", &MetricsColumns::lr);
  lr.from_zero = true;
  Chart time = chart("time of a step", "milliseconds", &MetricsColumns::step_ms);
  time.from_zero = true;
  return "<section id=\"curves\"><h2>Learning</h2><div class=\"grid\">" + draw(loss) + draw(norm) + draw(lr) +
         draw(time) + "</div></section>\n";
}

// The sum over categories, of which summary.cpp has a row of its own too; 0 where no plan is known.
int64_t planned_bytes(const RunFolder& folder) {
  int64_t sum = 0;
  if (!folder.run) return 0;
  for (const RunRecord::Row& row : folder.run->memory)
    if (row.name != "resident, above start") sum += std::max<int64_t>(0, row.predicted);
  return sum;
}

// What all pictures of one step on a page share.
struct Scale {
  double milliseconds = 0;
  int64_t bytes = 0;
  size_t pictures = 0;
};

Scale scale_of(const std::vector<RunFolder>& runs) {
  Scale scale;
  for (const RunFolder& folder : runs) {
    scale.bytes = std::max(scale.bytes, planned_bytes(folder));
    for (const Timeline& rank : folder.ranks) {
      ++scale.pictures;
      int64_t begin = 0, end = 0;
      if (step_bounds(rank, folder.kept_step, begin, end))
        scale.milliseconds = std::max(scale.milliseconds, static_cast<double>(end - begin) / 1e6);
      for (const Timeline::Sample& sample : rank.samples) scale.bytes = std::max(scale.bytes, total(sample.live));
    }
  }
  return scale;
}

// Live memory of rank 0 in one step, a line per run, over the same axes.
std::string memory_of_runs(const std::vector<RunFolder>& runs) {
  Chart chart;
  chart.title = "live memory of rank 0 within one step";
  chart.x_label = "milliseconds since the step began";
  chart.bytes = chart.steps = chart.from_zero = true;
  chart.width = 1000;
  chart.height = 320;
  for (size_t r = 0; r < runs.size(); ++r) {
    int64_t begin = 0, end = 0;
    if (runs[r].ranks.empty() || !step_bounds(runs[r].ranks[0], runs[r].kept_step, begin, end)) continue;
    Curve curve = {runs[r].name, static_cast<int>(r % 8), {}, r >= 8, false};
    for (const Timeline::Sample& sample : thin(runs[r].ranks[0].samples, begin, end, 500)) {
      curve.points.x.push_back(static_cast<double>(std::max<int64_t>(0, sample.time - begin)) / 1e6);
      curve.points.y.push_back(static_cast<double>(total(sample.live)));
    }
    if (curve.points.x.empty()) continue;
    curve.points.x.push_back(static_cast<double>(end - begin) / 1e6);
    curve.points.y.push_back(curve.points.y.back());
    chart.curves.push_back(std::move(curve));
  }
  return draw(chart);
}

// Peaks of all ranks as bars: is one of them larger?
std::string peaks(const RunFolder& folder) {
  const std::vector<int64_t>& bytes = folder.metrics.peak_by_rank;
  if (bytes.size() < 4) return "";
  const int64_t most = std::max<int64_t>(1, *std::max_element(bytes.begin(), bytes.end()));
  const double width = std::min(28.0, 920.0 / static_cast<double>(bytes.size()));
  std::string svg = fmt::format(
      "<figure class=\"peaks\"><figcaption>peak of each rank in the last step <span>the tallest bar is "
      "{}</span></figcaption><svg viewBox=\"0 0 1000 70\" role=\"img\" aria-label=\"peak memory of each rank\">",
      bytes_text(most));
  for (size_t r = 0; r < bytes.size(); ++r) {
    const double height = 50.0 * static_cast<double>(bytes[r]) / static_cast<double>(most);
    svg += fmt::format(
        "<rect class=\"bar\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>rank {}: {}</title></rect>",
        px(74 + width * static_cast<double>(r)), px(52 - height), px(width * 0.8), px(height), r, bytes_text(bytes[r]));
    if (bytes.size() <= 16 || r % 8 == 0)
      svg += fmt::format("<text class=\"mid\" x=\"{}\" y=\"66\">{}</text>",
                         px(74 + width * (static_cast<double>(r) + 0.4)), r);
  }
  return svg + "</svg></figure>\n";
}

std::string steps(const std::vector<RunFolder>& runs) {
  const Scale scale = scale_of(runs);
  std::string html = "<section id=\"step\"><h2>One step: memory and time</h2>";
  if (scale.pictures == 0) return html + "<p class=\"missing\">No timeline was kept.</p></section>\n";
  if (runs.size() > 1) html += memory_of_runs(runs);
  html += step_legend();
  for (size_t r = 0; r < runs.size(); ++r) {
    const RunFolder& folder = runs[r];
    html += fmt::format("<div class=\"run\"><h3>{}step {}", runs.size() > 1 ? escape(folder.name) + ", " : "",
                        folder.kept_step);
    if (folder.ranks.size() > 1) {
      html += ", <label>rank <select class=\"rank\">";
      for (size_t k = 0; k < folder.ranks.size(); ++k) html += fmt::format("<option>{}</option>", k);
      html += "</select></label>";
    }
    html += "</h3>";
    for (size_t k = 0; k < folder.ranks.size(); ++k) {
      StepView view;
      view.timeline = &folder.ranks[k];
      view.step = folder.kept_step;
      view.milliseconds = scale.milliseconds;
      view.most_bytes = scale.bytes;
      view.planned_bytes = planned_bytes(folder);
      // A page of 64 ranks is to stay small: less detail each.
      if (scale.pictures > 8) view.bins = 120, view.spans = 180;
      html +=
          fmt::format("<div class=\"panel\" data-rank=\"{}\"{}>", k, k > 0 ? " hidden" : "") + draw(view) + "</div>";
    }
    html += peaks(folder) + "</div>\n";
  }
  return html +
         "<p class=\"note\">The dashed line is the plan: the sum of what each category was predicted to need at its "
         "own peak, so an upper bound. A gather that lies under another unit's compute was prefetched.</p></section>\n";
}

std::string samples(const std::vector<RunFolder>& runs) {
  std::string html = "<section id=\"sample\"><h2>Sample</h2>";
  for (const RunFolder& folder : runs) {
    if (runs.size() > 1) html += fmt::format("<h3>{}</h3>", escape(folder.name));
    if (folder.run && !folder.run->sample.empty())
      html += "<pre>" + escape(folder.run->sample) + "</pre>";
    else
      html += "<p class=\"missing\">The run wrote no sample.</p>";
  }
  return html + "</section>\n";
}

}  // namespace

std::string report_page(const std::vector<RunFolder>& runs) {
  std::string title = "Trencadís";
  for (const RunFolder& folder : runs) title += (title == "Trencadís" ? ": " : ", ") + folder.name;
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"generator\" content=\"Trencadís " TRENCADIS_VERSION
      "\">\n<title>{}</title>\n<style>\n{}</style>\n"
      "<noscript><style>.panel[hidden]{{display:block}}select.rank{{display:none}}</style></noscript>\n"
      "</head>\n<body>\n",
      escape(title), kReportCss);
  html += header(runs);
  html += "<section id=\"runs\"><h2>" + std::string(runs.size() > 1 ? "Runs" : "Run") + "</h2>" + runs_table(runs) +
          "</section>\n";
  html += curves(runs) + steps(runs);
  html += "<section id=\"plan\"><h2>Predicted and measured</h2>" + predicted_table(runs) +
          "<p class=\"note\">Bytes: the largest peak of a rank inside a step; traffic: what rank 0 sent in the last "
          "step.</p></section>\n";
  html += "<section id=\"config\"><h2>Configuration</h2>" + config_table(runs) + "</section>\n";
  html += samples(runs);
  html += "<footer>Made by <code>trencadis report</code>, Trencadís " TRENCADIS_VERSION
          ". This file needs nothing but itself.</footer>\n<div id=\"tip\" hidden></div>\n<script>\n";
  return html + kReportJs + "</script>\n</body>\n</html>\n";
}

std::string write_report(const std::vector<std::string>& folders, const std::string& path) {
  write_file(path, report_page(read_run_folders(folders)));
  return "report: " + path;
}

}  // namespace trencadis
