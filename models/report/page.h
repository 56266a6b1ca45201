// The report page: one HTML file of text, inline SVG, a style sheet and a small script, which needs nothing from
// anywhere. One run, or several laid over each other.
#pragma once

#include <string>
#include <vector>

#include "models/report/run_folder.h"

namespace trencadis {

// The page for these runs. What is missing in them the page says; it is no error.
std::string report_page(const std::vector<RunFolder>& runs);
// Reads the folders, writes the page to `path`, returns it as "report: PATH". DataError: a folder does not exist, or
// `path` cannot be written.
std::string write_report(const std::vector<std::string>& folders, const std::string& path);

// -- parts of the page (tables.cpp) -----------------------------------------------------------------------------------

// One row a run: what it was, and what it cost.
std::string runs_table(const std::vector<RunFolder>& runs);
// The same for the terminal.
std::string runs_text(const std::vector<RunFolder>& runs);
std::string predicted_table(const std::vector<RunFolder>& runs);
std::string config_table(const std::vector<RunFolder>& runs);

// Text of report.css and report.js, which the build puts into the program (CMakeLists.txt).
extern const char* const kReportCss;
extern const char* const kReportJs;

}  // namespace trencadis
