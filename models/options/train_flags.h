// The table of flags of a training run, and what is read from it: settings as text.
//
// A flag exists once what it does is built, and stands in this one table: parsing, config file, --help, --print-config
// and fingerprint() come from it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/options/flags.h"
#include "models/options/train_options.h"

namespace trencadis {

// Bound to `options`.
FlagTable train_flags(TrainOptions& options);

// Every key and its value, as text.
std::vector<std::pair<std::string, std::string>> settings_of(TrainOptions options);
std::string setting_of(TrainOptions options, const std::string& key);

}  // namespace trencadis
