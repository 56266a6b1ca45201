// The table of flags: one entry each, which parsing, config file, --help and --print-config share.
//
// Why a table, and not calls of CLI11 spread over the parser: a key of the config file, a line of the help and a line
// of --print-config then cannot be forgotten, and all values are checked by the same few functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/options/options.h"

namespace trencadis {

struct Flag {
  std::string group;               // heading in --help
  std::string key;                 // the long name, without dashes: also the key of the config file
  std::vector<std::string> names;  // all of them without dashes, key included; one letter: a short flag
  std::string meta;                // "N", "FILE", "on|off"
  std::string help;
  bool is_switch = false;  // may stand without a value, which means on
  // Reads a value; throws UsageError. `shown` is the name that the user wrote.
  std::function<void(TrainOptions&, const std::string& shown, const std::string& value)> set;
  std::function<std::string(const TrainOptions&)> get;
  // --config, --help, --plan, ...: not a key of the config file, and no part of a run's configuration. Those that the
  // parser itself acts on have no `set` and `get`.
  bool command_line_only = false;

  // "--lr (--learning-rate, -l)"
  std::string title() const;
};

const std::vector<Flag>& flag_table();

// By any of its names, '_' counting as '-'; null if there is none.
const Flag* find_flag(std::string_view name);

// ". Did you mean --batch-size?", or a hint at --help where nothing is near. `dashes`: for the command line.
std::string suggestion(std::string_view wrong, bool dashes);

struct Preset {
  std::string name;
  int64_t n_layer, n_head, n_embd, block_size;
  int64_t batch_size, max_steps;
  double lr;
  int64_t warmup_steps;
  double dropout;
};

const std::vector<Preset>& presets();
// `shown` names the flag or key in the UsageError where there is no such preset.
void apply_preset(TrainOptions& options, const std::string& name, const std::string& shown = "--preset");
double tenth_of(double lr);  // min-lr where it is not given; rounded so that a tenth of 6e-4 prints as 6e-05

// One value that was given, and how messages name the place: "--beta1" or "run.conf:3: lr".
struct Setting {
  const Flag* flag;
  std::string shown, value;
};

// The settings of a config file (config_file.cpp), in its order. UsageError for a file that cannot be read, a line that
// is not `key = value`, an unknown key and a key given twice.
std::vector<Setting> read_config(const std::string& path);
// The same from text; `path` is for messages.
std::vector<Setting> parse_config(const std::string& text, const std::string& path);

std::string help_text();

// Fewest insertions, deletions, replacements and swaps of neighbours that turn one into the other.
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace trencadis
