// The page's tables.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/report/page.h"
#include "models/report/svg.h"

namespace trencadis {

namespace {

const RunRecord& record_of(const RunFolder& folder) {
  static const RunRecord none;
  return folder.run ? *folder.run : none;
}

int64_t sent_per_step(const RunRecord& run) {
  int64_t sum = run.traffic.empty() ? -1 : 0;
  for (const RunRecord::Row& row : run.traffic) sum += std::max<int64_t>(0, row.measured);
  return run.world == 1 && run.status != "running" ? 0 : sum;
}

double last_validation(const RunFolder& folder) {
  for (size_t i = folder.metrics.val_loss.size(); i-- > 0;)
    if (std::isfinite(folder.metrics.val_loss[i])) return folder.metrics.val_loss[i];
  return std::numeric_limits<double>::quiet_NaN();
}

// A title and, for each run, a text.
struct Column {
  std::string title;
  std::vector<std::string> cells;
  bool numeric = true;
};

std::vector<Column> columns_of(const std::vector<RunFolder>& runs) {
  std::vector<Column> columns = {{"run", {}, false}, {"stage", {}},      {"ranks", {}},         {"steps", {}},
                                 {"loss", {}},       {"validation", {}}, {"digest", {}, false}, {"P", {}},
                                 {"G", {}},          {"O", {}},          {"peak", {}},          {"sent a step", {}},
                                 {"ms a step", {}}};
  for (const RunFolder& folder : runs) {
    const RunRecord& run = record_of(folder);
    const std::string stage = run.setting("zero-stage");
    const std::string steps =
        folder.metrics.step.empty() ? fmt::format("{}", run.steps_done) : fmt::format("{}", folder.metrics.step.back());
    const std::string cells[] = {folder.name,
                                 stage.empty() ? "–" : stage,
                                 folder.run ? fmt::format("{}", run.world) : "–",
                                 steps,
                                 significant(folder.last_loss(), 6),
                                 significant(last_validation(folder), 5),
                                 run.digest.empty() ? "–" : run.digest,
                                 bytes_text(run.measured("parameters")),
                                 bytes_text(run.measured("gradients")),
                                 bytes_text(run.measured("optimizer state")),
                                 bytes_text(run.measured("all")),
                                 bytes_text(sent_per_step(run)),
                                 significant(folder.typical_step_ms(), 3)};
    for (size_t i = 0; i < columns.size(); ++i) columns[i].cells.push_back(cells[i]);
  }
  // A column in which nothing is known says nothing.
  std::erase_if(columns, [](const Column& column) {
    return std::all_of(column.cells.begin(), column.cells.end(), [](const std::string& cell) { return cell == "–"; });
  });
  return columns;
}

// Characters, not bytes: "–" is three of these.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string runs_text(const std::vector<RunFolder>& runs) {
  const std::vector<Column> columns = columns_of(runs);
  std::string text;
  for (size_t row = 0; row <= runs.size(); ++row) {
    for (size_t i = 0; i < columns.size(); ++i) {
      const Column& column = columns[i];
      size_t width = width_of(column.title);
      for (const std::string& cell : column.cells) width = std::max(width, width_of(cell));
      const std::string& cell = row == 0 ? column.title : column.cells[row - 1];
      const std::string space(width - width_of(cell), ' ');
      text += (i ? "  " : "") + (column.numeric ? space + cell : cell + space);
    }
    while (text.ends_with(' ')) text.pop_back();
    text += "\n";
  }
  return text;
}

std::string runs_table(const std::vector<RunFolder>& runs) {
  const std::vector<Column> columns = columns_of(runs);
  std::string html = "<div class=\"wide\"><table class=\"runs\"><thead><tr>";
  for (const Column& column : columns)
    html += fmt::format("<th scope=\"col\"{}>{}</th>", column.numeric ? " class=\"n\"" : "", column.title);
  html += "</tr></thead><tbody>";
  for (size_t row = 0; row < runs.size(); ++row) {
    html += "<tr>";
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string cell = escape(columns[i].cells[row]);
      if (i == 0)
        html += fmt::format("<th scope=\"row\"><i class=\"run c{}\"></i>{}</th>", row % 8, cell);
      else
        html += fmt::format("<td{}>{}</td>", columns[i].numeric ? " class=\"n\"" : "", cell);
    }
    html += "</tr>";
  }
  return html +
         "</tbody></table></div><p class=\"note\">P, G, O and peak: the most that a rank held inside a step, of "
         "parameters, gradients, optimizer state and everything. Sent: by rank 0, for training. Milliseconds: the "
         "median over the second half of the run.</p>\n";
}

std::string predicted_table(const std::vector<RunFolder>& runs) {
  std::vector<std::string> names;
  for (const RunFolder& folder : runs)
    for (const auto* rows : {&record_of(folder).memory, &record_of(folder).traffic})
      for (const RunRecord::Row& row : *rows)
        if (std::find(names.begin(), names.end(), row.name) == names.end()) names.push_back(row.name);
  if (names.empty()) return "<p class=\"missing\">No plan is known.</p>";
  std::string html = "<div class=\"wide\"><table class=\"plan\"><thead><tr><td></td>";
  for (size_t r = 0; r < runs.size(); ++r)
    html += fmt::format("<th scope=\"colgroup\" colspan=\"3\">{}{}</th>",
                        runs.size() > 1 ? fmt::format("<i class=\"run c{}\"></i>", r % 8) : "", escape(runs[r].name));
  html += "</tr><tr><td></td>";
  for (size_t r = 0; r < runs.size(); ++r)
    html +=
        "<th scope=\"col\" class=\"n\">predicted</th><th scope=\"col\" class=\"n\">measured</th><th scope=\"col\" "
        "class=\"n\">off by</th>";
  html += "</tr></thead><tbody>";
  const auto is_traffic = [&](const std::string& name) {
    return std::any_of(runs.begin(), runs.end(), [&](const RunFolder& folder) {
      const auto& rows = record_of(folder).traffic;
      return std::any_of(rows.begin(), rows.end(), [&](const RunRecord::Row& row) { return row.name == name; });
    });
  };
  for (const std::string& name : names) {
    html += fmt::format("<tr><th scope=\"row\">{}{}</th>", is_traffic(name) ? "sent by " : "", escape(name));
    for (const RunFolder& folder : runs) {
      const int64_t predicted = record_of(folder).predicted(name), measured = record_of(folder).measured(name);
      std::string off = "–";
      if (predicted >= 0 && measured >= 0)
        off = predicted == measured                               ? "exact"
              : std::abs(measured - predicted) < predicted / 2000 ? "0.0 %"
              : predicted == 0                                    ? fmt::format("+{}", bytes_text(measured))
                               : fmt::format("{:+.1f} %", 100.0 * static_cast<double>(measured - predicted) /
                                                              static_cast<double>(predicted));
      const auto cell = [](int64_t bytes) {
        return fmt::format("<td class=\"n\"{}>{}</td>", bytes >= 0 ? fmt::format(" title=\"{} bytes\"", bytes) : "",
                           bytes_text(bytes));
      };
      html += cell(predicted) + cell(measured) +
              fmt::format("<td class=\"n{}\">{}</td>", off == "exact" ? " good" : "", off);
    }
    html += "</tr>";
  }
  return html + "</tbody></table></div>\n";
}

std::string config_table(const std::vector<RunFolder>& runs) {
  std::vector<std::string> keys;
  for (const RunFolder& folder : runs)
    for (const auto& [key, value] : record_of(folder).config)
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  if (keys.empty()) return "<p class=\"missing\">The configuration is not known.</p>";
  std::string same, different;
  for (const std::string& key : keys) {
    const std::string first = record_of(runs[0]).setting(key);
    const bool equal = std::all_of(runs.begin(), runs.end(),
                                   [&](const RunFolder& folder) { return record_of(folder).setting(key) == first; });
    if (equal) {
      same += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", escape(key), first.empty() ? "–" : escape(first));
      continue;
    }
    different += fmt::format("<tr><th scope=\"row\">{}</th>", escape(key));
    for (const RunFolder& folder : runs)
      different += fmt::format("<td>{}</td>", escape(record_of(folder).setting(key)));
    different += "</tr>";
  }
  std::string html;
  if (!different.empty()) {
    html += "<p>What differs:</p><div class=\"wide\"><table><thead><tr><td></td>";
    for (size_t r = 0; r < runs.size(); ++r)
      html += fmt::format("<th scope=\"col\"><i class=\"run c{}\"></i>{}</th>", r % 8, escape(runs[r].name));
    html += "</tr></thead><tbody>" + different + "</tbody></table></div><p>What is the same:</p>";
  }
  return html + "<dl class=\"config\">" + same + "</dl>\n";
}

}  // namespace trencadis
