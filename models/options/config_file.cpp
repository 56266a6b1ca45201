#include "models/options/config_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "runtime/check.h"

namespace trencadis {

namespace {

std::string trimmed(const std::string& text) {
  constexpr const char* blanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

// Where a comment begins, or the length.
size_t comment_start(const std::string& text, size_t from = 0) {
  for (size_t i = from; i < text.size(); ++i)
    if (text[i] == '#' && (i == 0 || text[i - 1] == ' ' || text[i - 1] == '\t')) return i;
  return text.size();
}

// `text` begins with a quote. `place` is for messages.
std::string unquoted(const std::string& text, const std::string& place) {
  std::string value;
  size_t i = 1;
  for (; i < text.size() && text[i] != '"'; ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      value += text[i];
      continue;
    }
    const char c = text[++i];
    if (c != 'n' && c != 't' && c != '"' && c != '\\')
      throw UsageError(fmt::format(R"({}: \{} is not known in quotes; allowed: \n \t \" \\)", place, c));
    value += c == 'n' ? '\n' : c == 't' ? '\t' : c;
  }
  if (i >= text.size()) throw UsageError(fmt::format("{}: the closing quote is missing", place));
  const std::string rest = trimmed(text.substr(i + 1));
  if (!rest.empty() && rest[0] != '#')
    throw UsageError(fmt::format("{}: '{}' stands behind the closing quote", place, rest));
  return value;
}

// A string as it stands in a config file: in quotes where it would not be read back as it is.
std::string quoted(const std::string& value) {
  const bool plain = value == trimmed(value) && value.find_first_of("\"\n\t") == std::string::npos &&
                     comment_start(value) == value.size();
  if (plain) return value;
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c == '\n' ? "\\n" : c == '\t' ? "\\t" : std::string(1, c);
  }
  return text + '"';
}

std::map<std::string, std::string> by_key(const std::string& fingerprint) {
  std::map<std::string, std::string> values;
  std::istringstream lines(fingerprint);
  for (std::string line; std::getline(lines, line);)
    if (const size_t equals = line.find('='); equals != std::string::npos)
      values[line.substr(0, equals)] = line.substr(equals + 1);
  return values;
}

}  // namespace

std::vector<Setting> parse_config(const FlagTable& table, const std::string& text, const std::string& path) {
  if (text.find('\0') != std::string::npos)
    throw UsageError(
        fmt::format("{}: is not a text; a config file has 'key = value' lines, as --print-config writes them", path));
  std::vector<Setting> settings;
  std::map<const Flag*, int> lines_of;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string place = fmt::format("{}:{}", path, ++number);
    if (trimmed(line.substr(0, comment_start(line))).empty()) continue;
    const size_t equals = line.find('=');
    const std::string key = trimmed(line.substr(0, equals));
    if (equals == std::string::npos || key.empty())
      throw UsageError(fmt::format("{}: '{}' is not of the form 'key = value'", place, trimmed(line)));
    const Flag* flag = table.find(key);
    if (!flag) throw UsageError(fmt::format("{}: unknown key '{}'{}", place, key, table.suggestion(key, false)));
    if (flag->command_line_only)
      throw UsageError(fmt::format("{}: '{}' is no key of a config file; give it on the command line", place, key));
    if (int& before = lines_of[flag]; before)
      throw UsageError(fmt::format("{}: '{}' was given already, in line {}; keep one of them", place, key, before));
    else
      before = number;
    std::string value = line.substr(equals + 1);
    const std::string whole = trimmed(value);
    value = whole.starts_with('"') ? unquoted(whole, place) : trimmed(value.substr(0, comment_start(value)));
    settings.push_back({flag, fmt::format("{}: {}", place, key), value});
  }
  return settings;
}

std::vector<Setting> read_config(const FlagTable& table, const std::string& path) {
  std::ifstream file;
  if (std::error_code ignored; !std::filesystem::is_directory(path, ignored)) file.open(path, std::ios::binary);
  if (!file.is_open())
    throw UsageError(
        fmt::format("--config: '{}' cannot be read; check the path, relative to where the run started", path));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return parse_config(table, text, path);
}

std::string print_config(TrainOptions options) {
  std::string text = "# Trencadís: a whole configuration. Read it with --config FILE; flags given beside it win.\n";
  const std::string* group = nullptr;
  const FlagTable table = train_flags(options);
  for (const Flag& flag : table.flags()) {
    if (flag.command_line_only) continue;
    if (!group || *group != flag.group) text += fmt::format("\n# {}\n", flag.group);
    group = &flag.group;
    // Computed from total-batch-tokens it holds for this number of ranks only.
    const bool computed = flag.key == "grad-accum" && options.total_batch_tokens > 0;
    text += fmt::format("{}{} = {}{}\n", computed ? "# " : "", flag.key, quoted(flag.get()),
                        computed ? "  (follows from total-batch-tokens)" : "");
  }
  return text;
}

std::string fingerprint(TrainOptions options) {
  std::string text;
  const FlagTable table = train_flags(options);
  for (const Flag& flag : table.flags())  // those of --plan too: a rank that plans takes no part in a run
    if (flag.get) text += fmt::format("{}={}\n", flag.key, quoted(flag.get()));
  return text + fmt::format("prints-and-exits={}\n", options.print_and_exit.empty() ? "no" : "yes");
}

std::string fingerprint_difference(const std::string& a, int rank_a, const std::string& b, int rank_b) {
  const auto values_a = by_key(a);
  auto values_b = by_key(b);
  std::string text;
  for (const auto& [key, value] : values_a)
    if (const std::string& other = values_b[key]; other != value)
      text += fmt::format("{}{} is {} on rank {} and {} on rank {}", text.empty() ? "" : "; ", key, value, rank_a,
                          other, rank_b);
  return text;
}

}  // namespace trencadis
