// Configurations as text: the config file that --config reads, the same as --print-config writes it, and the fingerprint
// that ranks compare.
//
// The file: one `key = value` a line, keys as the long flags; '#' at the start of a line or behind a blank begins a
// comment; a value in double quotes may hold anything, with \n \t \" \\ . What print_config() writes, parse_config()
// reads back.
#pragma once

#include <string>
#include <vector>

#include "models/options/train_flags.h"

namespace trencadis {

// The settings of a config file, in its order. UsageError for a file that cannot be read, a line that is not
// `key = value`, an unknown key and a key given twice.
std::vector<Setting> read_config(const FlagTable& table, const std::string& path);
// The same from text; `path` is for messages.
std::vector<Setting> parse_config(const FlagTable& table, const std::string& text, const std::string& path);

// Every key as `key = value`, to be read again with --config.
std::string print_config(TrainOptions options);

// One "key=value" line per key. Equal on all ranks, or the run must not start.
std::string fingerprint(TrainOptions options);

// "batch-size is 12 on rank 0 and 16 on rank 3; ..." for each line that differs, for the error on all ranks.
std::string fingerprint_difference(const std::string& a, int rank_a, const std::string& b, int rank_b);

}  // namespace trencadis
