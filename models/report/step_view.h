// The picture of one step on one rank: live memory as stacked areas by category, and under it, on the same axis of
// time, what compute and communication did.
#pragma once

#include <string>

#include "models/report/timeline.h"

namespace trencadis {

struct StepView {
  const Timeline* timeline = nullptr;
  int64_t step = 0;           // its number: the span "step N" is the stretch that is drawn
  double milliseconds = 0;    // length of the axis: common to all pictures of a page
  int64_t most_bytes = 0;     // height of the axis, likewise
  int64_t planned_bytes = 0;  // 0: not known
  int bins = 500;             // of memory
  int spans = 1500;           // the most that are drawn; neighbours too short to be told apart are drawn as one
};

// From the span of the step; false where there is none.
bool step_bounds(const Timeline& timeline, int64_t step, int64_t& begin, int64_t& end);

std::string draw(const StepView& view);
// Names and colours of categories and of what lanes show.
std::string step_legend();

}  // namespace trencadis
