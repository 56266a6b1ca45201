// A picture of curves with axes, units, a legend, and its numbers beside it for report.js to show under the mouse.
#pragma once

#include <string>
#include <vector>

#include "models/report/svg.h"

namespace trencadis {

struct Curve {
  std::string name;
  int colour = 0;  // class c0 to c7 of report.css
  Points points;
  bool dashed = false;
  bool marks = false;  // a dot at each point
  bool listed = true;  // in the legend
};

struct Chart {
  std::string title, unit;  // "validation and training loss", "nats per token"
  std::string x_label;      // "step"
  std::vector<Curve> curves;
  bool steps = false;        // a value holds until the next
  bool from_zero = false;    // the y axis begins at 0
  bool logarithmic = false;  // where all values allow it
  bool bytes = false;        // y counts bytes
  double width = 500, height = 250;
};

// A <figure>; one that says so where there is nothing to draw.
std::string draw(const Chart& chart);

// Grid lines, numbers and titles of two axes; the plot lies between them.
std::string draw_axes(const PlotAxis& x, const PlotAxis& y, const std::string& x_label, double unit_size);

}  // namespace trencadis
