#include "models/report/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trencadis {

namespace {

// Bytes of the UTF-8 character at the front of `text`; 0: there is none.
size_t character_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xC2 && first < 0xE0 ? 2
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xF0 && first < 0xF5 ? 4
                                                        : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // Overlong forms, surrogates, beyond U+10FFFF.
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F)) return 0;
  if ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = character_length(text);
    const char c = text[0];
    if (length == 0 || (length == 1 && ((c >= 0 && c < 0x20 && c != '\n' && c != '\t') || c == 0x7F))) {
      out += "\xEF\xBF\xBD";
      text.remove_prefix(1);
      continue;
    }
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string escape_json(std::string json) {
  std::string out;
  for (const char c : json) out += c == '<' ? "\\u003c" : std::string(1, c);
  return out;
}

std::string px(double length) {
  std::string text = fmt::format("{:.1f}", length);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::string significant(double x, int n) {
  if (!std::isfinite(x)) return "–";
  if (x != 0 && (std::fabs(x) < 1e-3 || std::fabs(x) >= 1e6)) return fmt::format("{:.{}e}", x, std::max(0, n - 2));
  const int before = x == 0 ? 1 : static_cast<int>(std::floor(std::log10(std::fabs(x)))) + 1;
  return fmt::format("{:.{}f}", x, std::max(0, n - std::max(before, 1)));
}

std::string bytes_text(int64_t bytes) {
  if (bytes < 0) return "–";
  const ByteUnit unit = byte_unit(static_cast<double>(bytes));
  return fmt::format("{:.{}f} {}", static_cast<double>(bytes) / unit.size, unit.name == "GiB" ? 2 : 1, unit.name);
}

std::string count_text(double count) {
  if (!std::isfinite(count)) return "–";
  if (std::fabs(count) < 1e-12) return "0";
  if (count >= 1e9) return fmt::format("{:.3g}G", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.3g}M", count / 1e6);
  if (count >= 1e4) return fmt::format("{:.3g}k", count / 1e3);
  return fmt::format("{:.6g}", count);
}

double PlotAxis::at(double value) const {
  const auto scaled = [&](double v) { return logarithmic ? std::log10(v) : v; };
  const double span = scaled(high) - scaled(low);
  return from + (span > 0 ? (scaled(value) - scaled(low)) / span : 0.5) * (to - from);
}

std::vector<double> PlotAxis::ticks(int about) const {
  std::vector<double> found;
  if (logarithmic) {
    const bool few = std::log10(high / low) < 1.5;
    for (double power = std::pow(10, std::floor(std::log10(low))); power <= high; power *= 10)
      for (const double factor : {1.0, 2.0, 5.0})
        if ((few || factor == 1) && power * factor >= low * 0.999 && power * factor <= high * 1.001)
          found.push_back(power * factor);
    return found;
  }
  const double rough = (high - low) / std::max(1, about);
  if (!(rough > 0)) return {low};
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = power;
  for (const double factor : {2.0, 5.0, 10.0})
    if (step < rough * 0.8) step = power * factor;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) found.push_back(i * step);
  return found;
}

ByteUnit byte_unit(double most) {
  if (most >= 0x1p30) return {"GiB", 0x1p30};
  if (most >= 0x1p20) return {"MiB", 0x1p20};
  return {"KiB", 0x1p10};
}

Points thin_curve(const std::vector<double>& x, const std::vector<double>& y, int bins) {
  Points points;
  const auto keep = [&](size_t i) {
    points.x.push_back(x[i]);
    points.y.push_back(y[i]);
  };
  if (static_cast<int>(x.size()) <= 2 * bins) {
    for (size_t i = 0; i < x.size(); ++i) keep(i);
    return points;
  }
  const double width = (x.back() - x.front()) / bins;
  for (size_t first = 0, last; first < x.size(); first = last) {
    size_t low = x.size(), high = x.size(), gap = x.size();
    const double bin = std::floor((x[first] - x.front()) / width);
    for (last = first; last < x.size() && std::floor((x[last] - x.front()) / width) == bin; ++last) {
      if (!std::isfinite(y[last])) {
        gap = last;
        continue;
      }
      if (low == x.size() || y[last] < y[low]) low = last;
      if (high == x.size() || y[last] > y[high]) high = last;
    }
    if (low == x.size())
      keep(gap);
    else
      for (const size_t i : {std::min(low, high), std::max(low, high)})
        if (points.x.empty() || points.x.back() != x[i]) keep(i);
  }
  return points;
}

std::string path_through(const Points& points, const PlotAxis& x, const PlotAxis& y, bool steps) {
  std::string d, last_y;
  bool drawing = false;
  for (size_t i = 0; i < points.x.size(); ++i) {
    if (!std::isfinite(points.y[i]) || (y.logarithmic && points.y[i] <= 0)) {
      drawing = false;
      continue;
    }
    const std::string px_x = px(x.at(points.x[i])), px_y = px(y.at(points.y[i]));
    if (!drawing)
      d += fmt::format("M{} {}", px_x, px_y);
    else if (!steps)
      d += fmt::format("L{} {}", px_x, px_y);
    else if (px_y != last_y)
      d += fmt::format("H{}V{}", px_x, px_y);
    drawing = true;
    last_y = px_y;
  }
  if (steps && drawing) d += fmt::format("H{}", px(x.at(points.x.back())));
  return d;
}

}  // namespace trencadis
