// Configurations as text: the config file that --config reads, the same as --print-config writes it, the fingerprint
// that ranks compare, and --help.
//
// The file: one `key = value` a line, keys as the long flags; '#' at the start of a line or behind a blank begins a
// comment; a value in double quotes may hold anything, with \n \t \" \\ . What print_config() writes, parse_config()
// reads back.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "models/options/flag_table.h"
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

void append_help(std::string& out, const Flag& flag) {
  constexpr size_t indent = 34;
  std::string head = "  ", others;
  for (const std::string& name : flag.names)
    if (name.size() == 1) head += fmt::format("-{}, ", name);
  head += fmt::format("--{}{}{}", flag.key, flag.meta.empty() ? "" : " ", flag.meta);
  for (const std::string& name : flag.names)
    if (name.size() > 1 && name != flag.key) others += (others.empty() ? "--" : ", --") + name;
  out += head;
  out += head.size() + 2 > indent ? "\n" + std::string(indent, ' ') : std::string(indent - head.size(), ' ');
  std::string text = flag.help;
  if (!others.empty()) text += fmt::format(" (also {})", others);
  if (flag.get) {
    TrainOptions first, other;
    bool by_preset = false;
    for (const Preset& preset : presets()) {
      apply_preset(other, preset.name);
      by_preset |= flag.key != "preset" && flag.get(other) != flag.get(first);
    }
    const std::string value = flag.get(first);
    if (by_preset)
      text += " [by preset]";
    else if (!value.empty())
      text += fmt::format(" [{}]", value);
  }
  wrap(out, text, indent);
}

}  // namespace

std::vector<Setting> parse_config(const std::string& text, const std::string& path) {
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
    const Flag* flag = find_flag(key);
    if (!flag) throw UsageError(fmt::format("{}: unknown key '{}'{}", place, key, suggestion(key, false)));
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

std::vector<Setting> read_config(const std::string& path) {
  std::ifstream file;
  if (std::error_code ignored; !std::filesystem::is_directory(path, ignored)) file.open(path, std::ios::binary);
  if (!file.is_open())
    throw UsageError(
        fmt::format("--config: '{}' cannot be read; check the path, relative to where the run started", path));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return parse_config(text, path);
}

std::vector<std::pair<std::string, std::string>> settings_of(const TrainOptions& options) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const Flag& flag : flag_table())
    if (!flag.command_line_only && flag.get) settings.emplace_back(flag.key, flag.get(options));
  return settings;
}

std::string setting_of(const TrainOptions& options, const std::string& key) { return find_flag(key)->get(options); }

std::string print_config(const TrainOptions& options) {
  std::string text =
      "# Trencadís, train_gpt: a whole configuration. Read it with --config FILE; flags given beside it win.\n";
  const std::string* group = nullptr;
  for (const Flag& flag : flag_table()) {
    if (flag.command_line_only) continue;
    if (!group || *group != flag.group) text += fmt::format("\n# {}\n", flag.group);
    group = &flag.group;
    // Computed from total-batch-tokens it holds for this number of ranks only.
    const bool computed = flag.key == "grad-accum" && options.total_batch_tokens > 0;
    text += fmt::format("{}{} = {}{}\n", computed ? "# " : "", flag.key, quoted(flag.get(options)),
                        computed ? "  (follows from total-batch-tokens)" : "");
  }
  return text;
}

std::string fingerprint(const TrainOptions& options) {
  std::string text;
  for (const Flag& flag : flag_table())  // those of --plan too: a rank that plans takes no part in a run
    if (flag.get) text += fmt::format("{}={}\n", flag.key, quoted(flag.get(options)));
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

std::string help_text() {
  std::string text =
      "train_gpt: trains a GPT, alone or on several ranks under mpirun.\n\n"
      "  train_gpt --preset tiny                                     a small model on text, one process\n"
      "  mpirun -np 2 train_gpt --preset tiny -i input.txt           the same on two ranks, your own text\n"
      "  (more ranks than cores: mpirun --oversubscribe; cores left idle: mpirun --bind-to none)\n"
      "  train_gpt --preset gpt2 -i 'data/train_*.bin' -j data/val.bin -b 4 -d 16384\n"
      "  train_gpt --config run.conf --lr 3e-4                       a file of settings, one of them changed\n\n"
      "In long flags - and _ are the same. Later layers win: defaults, preset, config file, command line.\n"
      "[x]: the value if nothing is given.\n";
  std::string group;
  for (const Flag& flag : flag_table()) {
    if (flag.group != group) text += fmt::format("\n{}\n", flag.group);
    group = flag.group;
    append_help(text, flag);
  }
  text += "\nPresets\n";
  text += fmt::format("  {:<18}{:>8}{:>8}{:>8}{:>12}{:>12}{:>11}{:>10}{:>9}{:>9}\n", "", "n-layer", "n-head", "n-embd",
                      "block-size", "batch-size", "max-steps", "lr", "warm-up", "dropout");
  for (const Preset& p : presets())
    text += fmt::format("  {:<18}{:>8}{:>8}{:>8}{:>12}{:>12}{:>11}{:>10}{:>9}{:>9}\n", p.name, p.n_layer, p.n_head,
                        p.n_embd, p.block_size, p.batch_size, p.max_steps, p.lr, p.warmup_steps, p.dropout);
  text += "\nExit codes: 0 done, 2 usage, 3 data, 4 diverged, 1 anything else.\n";
  return text;
}

}  // namespace trencadis
