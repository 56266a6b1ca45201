// How a run is told what to do: command line, config file and presets become TrainOptions.
//
// Why layers: defaults < preset < sizes of --init-from < config file < command line. Each layer sets only what it names,
// so that a preset changes a model's size without the user repeating it, and a flag typed by hand always wins. A preset
// may be named in either of the last two.
//
// Invariants a change must keep:
// - TrainOptions that come from here are consistent: later code need not check them again. What depends on the data (the
//   vocabulary, the length of the text) is checked where the data is opened.
// - Every error is a UsageError (exit 2) that names flag, value and what is allowed.
#pragma once

#include <functional>

#include "models/options/command_line.h"
#include "models/options/train_options.h"

namespace trencadis {

// Sets the sizes of the weights that --init-from names.
using SizesFrom = std::function<void(TrainOptions& options, const std::string& init_from)>;

// `world` is the number of ranks, which --total-batch-tokens is divided by.
TrainOptions parse_train(const Arguments& arguments, int world, const SizesFrom& sizes_from);
// The same flags, of which those matter that change a plan; `plan` is set.
TrainOptions parse_plan(const Arguments& arguments, int world, const SizesFrom& sizes_from);

}  // namespace trencadis
