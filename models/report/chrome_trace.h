// --trace: a file for chrome://tracing and ui.perfetto.dev, in the Trace Event Format: a process per rank, a thread per
// lane, complete events ("X", times in microseconds) for spans, counters ("C") for live bytes per category.
// Format: "Trace Event Format", Google, docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
#pragma once

#include <string>
#include <vector>

#include "models/report/timeline.h"

namespace trencadis {

// by_rank[i] is rank first_rank + i. `note` says what is missing, if anything. Throws DataError when
// it cannot be written.
void write_chrome_trace(const std::string& path, const std::vector<Timeline>& by_rank, int first_rank,
                        const std::string& note);

// Writes all of `text` and then renames, so that a reader never sees half a file. A link, a device or a pipe stays what
// it is and is written to directly. Throws DataError.
void write_file(const std::string& path, const std::string& text);

// Throws DataError if a file could not be written there later. Leaves everything as it was.
void check_writable(const std::string& path);

}  // namespace trencadis
