// `trencadis report`: the page for runs that are over, or under way.
#include "models/programs/program.h"
#include "models/report/chrome_trace.h"
#include "models/report/page.h"
#include "runtime/check.h"

namespace trencadis {

namespace {

FlagTable report_flags(std::string& output) {
  FlagTable table;
  table.text("output,o", "FILE", output,
             "where the page goes; default: report.html in the folder, for several runs in this one");
  table.command("help,h", "", "print this and exit");
  return table;
}

std::string help(const std::string& program, const FlagTable& table) {
  return fmt::format(
             "Usage: {} DIR... [-o FILE.html]\n\n"
             "Prints a table of the runs that wrote to these folders (--out-dir) and makes one page of them: curves,\n"
             "memory and lanes of one step, predicted against measured, configuration, sample. Several runs are laid\n"
             "over each other.\n",
             program) +
         help_of(table, [](const Flag&) { return std::string(); });
}

}  // namespace

int report_command(const Arguments& arguments) {
  std::string output;
  const FlagTable table = report_flags(output);
  const CommandLine line = read_command_line(table, arguments);
  if (line.help) {
    fmt::print("{}", help(arguments.program, table));
    return 0;
  }
  for (const Setting& setting : line.settings) setting.flag->set(setting.shown, setting.value);
  const std::vector<std::string>& folders = line.words;
  if (folders.empty())
    throw UsageError(fmt::format("report: give the folders of the runs (--out-dir), see {} --help", arguments.program));
  if (output.empty()) output = folders.size() == 1 ? folders[0] + "/report.html" : "report.html";
  const std::vector<RunFolder> runs = read_run_folders(folders);
  fmt::print("{}", runs_text(runs));
  for (const RunFolder& folder : runs)
    for (const std::string& sentence : folder.missing) fmt::print("{}: {}\n", folder.name, sentence);
  write_file(output, report_page(runs));
  fmt::print("report: {}\n", output);
  return 0;
}

}  // namespace trencadis
