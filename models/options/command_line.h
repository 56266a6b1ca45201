// The command line of a command against its table of flags. CLI11 takes it apart (clusters, -b4, --b=4); which flags
// there are and what their values mean is the table's.
#pragma once

#include <string>
#include <vector>

#include "models/options/flags.h"

namespace trencadis {

// A command as it was called: "trencadis train" (for messages), and the words behind that.
struct Arguments {
  std::string program;
  std::vector<std::string> words;
};

struct CommandLine {
  std::vector<Setting> settings;   // in the order of the table; of a flag given twice the last counts
  std::vector<std::string> words;  // that belong to no flag: files, folders
  bool help = false;               // then nothing else was looked at, right or wrong

  // The value of a flag that the command itself acts on: null if it was not given.
  const std::string* value(const std::string& key) const;
};

// Throws UsageError for an unknown flag, with the nearest right one, and for a value that is missing.
CommandLine read_command_line(const FlagTable& table, const Arguments& arguments);

// All flags of the table under their headings; `values` says what holds where a flag is not given.
std::string help_of(const FlagTable& table, const std::function<std::string(const Flag&)>& value);

}  // namespace trencadis
