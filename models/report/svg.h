// The few pieces that the page's pictures are drawn with: escaped text, numbers as people write them, axes, thinning.
// Lengths are in the units of an SVG's viewBox, about a pixel each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trencadis {

// For HTML text and attribute values. Control characters and bytes that are no UTF-8 become U+FFFD.
std::string escape(std::string_view text);
// For a <script type="application/json">: nothing in it can end the element.
std::string escape_json(std::string json);

std::string px(double length);             // "12.3", no needless digits
std::string significant(double x, int n);  // n significant digits: "2.346", "6e-04"; "–" for NaN
std::string bytes_text(int64_t bytes);     // "38.2 MiB"; "–" below 0
std::string count_text(double count);      // "12.3k", "1.5M"

// A linear or logarithmic scale from values to lengths.
struct PlotAxis {
  double low = 0, high = 1;  // values
  double from = 0, to = 1;   // lengths at low and high
  bool logarithmic = false;
  double at(double value) const;
  std::vector<double> ticks(int about) const;  // round values inside
};

// The unit in which bytes up to `most` are shown on an axis, and its size.
struct ByteUnit {
  std::string name;
  double size;
};
ByteUnit byte_unit(double most);

// Points to draw of a curve: of each of `bins` stretches of x the lowest and the highest, in order; NaNs make gaps, one
// where there are many.
struct Points {
  std::vector<double> x, y;
};
Points thin_curve(const std::vector<double>& x, const std::vector<double>& y, int bins);

// The `d` of a path through points; NaN lifts the pen. steps: a value holds until the next point.
std::string path_through(const Points& points, const PlotAxis& x, const PlotAxis& y, bool steps);

}  // namespace trencadis
