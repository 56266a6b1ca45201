#include "models/options/flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>

#include "runtime/check.h"

namespace trencadis {

namespace {

template <typename Number>
bool parse_whole(const std::string& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

// Appends text to `out`, broken at blanks before column 110, from column `indent` on.
void wrap(std::string& out, const std::string& text, size_t indent) {
  std::istringstream words(text);
  size_t column = indent;
  for (std::string word; words >> word; column += word.size() + 1) {
    if (column > indent && column + word.size() > 110) {
      out.append("\n").append(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
    }
    out += word;
  }
  out += '\n';
}

}  // namespace

bool parse_number(const std::string& text, int64_t& number) { return parse_whole(text, number); }
bool parse_number(const std::string& text, double& number) { return parse_whole(text, number); }

void wrong_value(const std::string& shown, const std::string& value, const std::string& allowed) {
  throw UsageError(fmt::format("{}: '{}' cannot be used; allowed: {}", shown, value, allowed));
}

std::string Flag::title() const {
  std::string others;
  for (const std::string& name : names)
    if (name != key) others += (others.empty() ? "-" : ", -") + std::string(name.size() > 1, '-') + name;
  return others.empty() ? fmt::format("--{}", key) : fmt::format("--{} ({})", key, others);
}

// ---- kinds of values ----

void FlagTable::group(std::string name, bool planned) {
  group_ = std::move(name);
  planned_ = planned;
}

Flag& FlagTable::integer(const std::string& names, int64_t& field, int64_t least, int64_t most, std::string help) {
  Flag& flag = add(names, "N", std::move(help));
  flag.set = [=, &field](const std::string& shown, const std::string& value) {
    int64_t number = 0;
    if (parse_number(value, number) && number >= least && number <= most)
      field = number;
    else
      wrong_value(shown, value,
                  least == most                                ? fmt::format("{}", least)
                  : most < std::numeric_limits<int64_t>::max() ? fmt::format("whole numbers from {} to {}", least, most)
                                                               : fmt::format("whole numbers from {}", least));
  };
  flag.get = [&field] { return fmt::format("{}", field); };
  return flag;
}

Flag& FlagTable::real(const std::string& names, double& field, double least, double below, std::string help) {
  Flag& flag = add(names, "X", std::move(help));
  flag.set = [=, &field](const std::string& shown, const std::string& value) {
    double number = 0;
    if (parse_number(value, number) && std::isfinite(number) && number >= least && number < below)
      field = number;
    else
      wrong_value(shown, value,
                  std::isinf(below) ? fmt::format("numbers from {}", least)
                                    : fmt::format("numbers from {} and below {}", least, below));
  };
  flag.get = [&field] { return fmt::format("{}", field); };
  return flag;
}

Flag& FlagTable::text(const std::string& names, std::string meta, std::string& field, std::string help) {
  Flag& flag = add(names, std::move(meta), std::move(help));
  flag.set = [&field](const std::string&, const std::string& value) { field = value; };
  flag.get = [&field] { return field; };
  return flag;
}

Flag& FlagTable::choice(const std::string& names, const std::string& allowed, std::string& field, std::string help) {
  Flag& flag = add(names, allowed, std::move(help));
  flag.set = [=, &field](const std::string& shown, const std::string& value) {
    const std::vector<std::string> values = split(allowed, '|');
    if (std::find(values.begin(), values.end(), value) == values.end())
      wrong_value(shown, value, fmt::format("{}", fmt::join(values, ", ")));
    field = value;
  };
  flag.get = [&field] { return field; };
  return flag;
}

Flag& FlagTable::on_off(const std::string& names, bool& field, std::string help) {
  Flag& flag = add(names, "", std::move(help));
  flag.is_switch = true;
  flag.set = [&field](const std::string& shown, const std::string& value) {
    if (value == "on" || value == "true" || value == "True" || value == "1" || value == "yes")
      field = true;
    else if (value == "off" || value == "false" || value == "False" || value == "0" || value == "no")
      field = false;
    else
      wrong_value(shown, value, "on, off (also true, false, 1, 0)");
  };
  flag.get = [&field] { return std::string(field ? "on" : "off"); };
  return flag;
}

Flag& FlagTable::quantity(const std::string& names, std::string meta, int64_t& field, std::string help) {
  Flag& flag = add(names, std::move(meta), std::move(help));
  flag.set = [&field](const std::string& shown, const std::string& value) {
    static const std::vector<std::pair<std::string, double>> units = {
        {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"kB", 1e3}, {"KB", 1e3},
        {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {"K", 1e3},      {"M", 1e6},  {"B", 1e9}};
    std::string digits = value;
    double unit = 1, number = 0;
    for (const auto& [name, factor] : units)
      if (digits.size() > name.size() && digits.ends_with(name)) {
        digits.resize(digits.size() - name.size());
        unit = factor;
        break;
      }
    if (!parse_number(digits, number) || !(number * unit >= 1 && number * unit <= 1e15))
      wrong_value(shown, value, "numbers from 1 to 1e15, such as 7e9, 350M, 24GB or 80GiB");
    field = static_cast<int64_t>(number * unit);
  };
  flag.get = [&field] { return field > 0 ? fmt::format("{}", field) : std::string(); };
  return flag;
}

Flag& FlagTable::command(const std::string& names, std::string meta, std::string help) {
  Flag& flag = add(names, std::move(meta), std::move(help));
  flag.is_switch = flag.meta.empty();
  flag.command_line_only = true;
  return flag;
}

Flag& FlagTable::add(const std::string& names, std::string meta, std::string help) {
  Flag flag;
  flag.group = group_;
  flag.planned = planned_;
  flag.names = split(names, ',');
  flag.key = flag.names.front();
  flag.meta = std::move(meta);
  flag.help = std::move(help);
  flags_.push_back(std::move(flag));
  return flags_.back();
}

// ---- looking up ----

const Flag* FlagTable::find(std::string_view name) const {
  std::string dashed(name);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  for (const Flag& flag : flags_)
    if (std::find(flag.names.begin(), flag.names.end(), dashed) != flag.names.end()) return &flag;
  return nullptr;
}

std::string nearest(std::string_view wrong, const std::vector<std::string>& names) {
  std::string best;
  size_t least = std::max<size_t>(2, wrong.size() / 3) + 1;  // farther names are other words
  for (const std::string& name : names)
    if (const size_t distance = edit_distance(wrong, name); distance < least) {
      least = distance;
      best = name;
    }
  return best;
}

std::string FlagTable::suggestion(std::string_view wrong, bool dashes) const {
  std::string dashed(wrong);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  std::vector<std::string> names;
  for (const Flag& flag : flags_)
    for (const std::string& name : flag.names)
      if (name.size() > 1 && (dashes || !flag.command_line_only)) names.push_back(name);
  const std::string best = nearest(dashed, names);
  if (best.empty()) return "; --help lists all there are";
  return fmt::format("; did you mean {}{}?", dashes ? "--" : "", best);
}

size_t edit_distance(std::string_view a, std::string_view b) {
  // Optimal string alignment: rows of the usual table, two behind for the swap.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string help_of(const Flag& flag, const std::string& value) {
  constexpr size_t indent = 34;
  std::string head = "  ", others;
  for (const std::string& name : flag.names)
    if (name.size() == 1) head += fmt::format("-{}, ", name);
  head += fmt::format("--{}{}{}", flag.key, flag.meta.empty() ? "" : " ", flag.meta);
  for (const std::string& name : flag.names)
    if (name.size() > 1 && name != flag.key) others += (others.empty() ? "--" : ", --") + name;
  std::string out = head;
  out += head.size() + 2 > indent ? "\n" + std::string(indent, ' ') : std::string(indent - head.size(), ' ');
  std::string text = flag.help;
  if (!others.empty()) text += fmt::format(" (also {})", others);
  if (!value.empty()) text += fmt::format(" [{}]", value);
  wrap(out, text, indent);
  return out;
}

}  // namespace trencadis
