// Flags: what a command can be told, as a table of entries that parsing, config file, --help and --print-config share.
//
// Why a table, and not calls of CLI11 spread over the parser: a key of the config file, a line of the help and a line
// of --print-config then cannot be forgotten, and all values are checked by the same few functions.
//
// A table is bound to the variables that its flags set: they must outlive it, and stay where they are.
// Errors: UsageError that names flag, value and what is allowed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trencadis {

struct Flag {
  std::string group;               // heading in --help
  std::string key;                 // the long name, without dashes: also the key of the config file
  std::vector<std::string> names;  // all of them without dashes, key included; one letter: a short flag
  std::string meta;                // "N", "FILE", "on|off"
  std::string help;
  bool is_switch = false;  // may stand without a value, which means on
  // Reads a value; throws UsageError. `shown` is the name that the user wrote.
  std::function<void(const std::string& shown, const std::string& value)> set;
  std::function<std::string()> get;
  // --config, --help, --plan, ...: not a key of the config file, and no part of a run's configuration. Those that the
  // command itself acts on have no `set` and `get`.
  bool command_line_only = false;
  bool planned = false;  // changes what `trencadis plan` says

  // "--lr (--learning-rate, -l)"
  std::string title() const;
};

// One method per kind of value. `names`: the key, then aliases, with commas between. What a method returns may be changed
// until the next flag is added.
class FlagTable {
 public:
  // Heading of the flags that follow.
  void group(std::string name, bool planned = false);
  Flag& integer(const std::string& names, int64_t& value, int64_t least, int64_t most, std::string help);
  // least <= value, and value < below.
  Flag& real(const std::string& names, double& value, double least, double below, std::string help);
  Flag& text(const std::string& names, std::string meta, std::string& value, std::string help);
  // `allowed` as in "cosine|linear|constant".
  Flag& choice(const std::string& names, const std::string& allowed, std::string& value, std::string help);
  Flag& on_off(const std::string& names, bool& value, std::string help);
  // A whole number that may be written 7e9, or with a unit of bytes: 24GB, 80GiB. 0: not given.
  Flag& quantity(const std::string& names, std::string meta, int64_t& value, std::string help);
  // What the command itself acts on. Without meta: a switch.
  Flag& command(const std::string& names, std::string meta, std::string help);
  // Any other: `set` and `get` are the caller's.
  Flag& add(const std::string& names, std::string meta, std::string help);

  const std::vector<Flag>& flags() const { return flags_; }
  // By any of its names, '_' counting as '-'; null if there is none.
  const Flag* find(std::string_view name) const;
  // "; did you mean --batch-size?", or a hint at --help where nothing is near. `dashes`: for the command line.
  std::string suggestion(std::string_view wrong, bool dashes) const;

 private:
  std::string group_;
  bool planned_ = false;
  std::vector<Flag> flags_;
};

// One value that was given, and how messages name the place: "--beta1" or "run.conf:3: lr".
struct Setting {
  const Flag* flag;
  std::string shown, value;
};

// The lines of --help that a flag takes, with `value` (empty: none) as what holds if nothing is given.
std::string help_of(const Flag& flag, const std::string& value);

// For `set` of flags that are none of the kinds above.
[[noreturn]] void wrong_value(const std::string& shown, const std::string& value, const std::string& allowed);
// The whole text as a number.
bool parse_number(const std::string& text, int64_t& number);
bool parse_number(const std::string& text, double& number);

// Fewest insertions, deletions, replacements and swaps of neighbours that turn one into the other.
size_t edit_distance(std::string_view a, std::string_view b);
// The nearest of `names`; empty where all are farther than other words are.
std::string nearest(std::string_view wrong, const std::vector<std::string>& names);

}  // namespace trencadis
