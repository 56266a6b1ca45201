// train_gpt report: the page for runs that are over, or under way.
#include <fmt/format.h>

#include "models/report/chrome_trace.h"
#include "models/report/page.h"
#include "runtime/check.h"

namespace trencadis {

namespace {
constexpr const char* kHelp =
    "Usage: train_gpt report DIR... [-o FILE.html]\n\n"
    "Prints a table of the runs that wrote to these folders (--out-dir) and makes one page of them: curves,\n"
    "memory and lanes of one step, predicted against measured, configuration, sample. Several runs are laid\n"
    "over each other.\n\n"
    "  -o, --output FILE   where the page goes; default: report.html in the folder, for several runs in this one\n"
    "  -h, --help          this text\n";
}

int report_command(int argc, const char* const* argv) {
  std::vector<std::string> folders;
  std::string output;
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "-h" || argument == "--help") {
      fmt::print("{}", kHelp);
      return 0;
    }
    if (argument == "-o" || argument == "--output") {
      if (++i == argc) throw UsageError(fmt::format("{}: a file is missing", argument));
      output = argv[i];
    } else if (argument.starts_with("--output=")) {
      output = argument.substr(9);
    } else if (argument.size() > 1 && argument[0] == '-') {
      throw UsageError(fmt::format("report: unknown flag {}; there are -o FILE and --help", argument));
    } else {
      folders.push_back(argument);
    }
  }
  if (folders.empty())
    throw UsageError("report: give the folders of the runs (--out-dir), see train_gpt report --help");
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
