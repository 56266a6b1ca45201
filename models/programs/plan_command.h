// `trencadis plan`, and `train --plan`, which prints the same.
#pragma once

#include <string>

#include "models/options/train_options.h"

namespace trencadis {

// For the ranks that the options name, else for `world`.
std::string plan_text(const TrainOptions& options, int world);

}  // namespace trencadis
