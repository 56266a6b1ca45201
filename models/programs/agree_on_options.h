// Flags that all ranks of a job were given alike.
#pragma once

#include <functional>

#include "dist/communicator.h"
#include "models/options/train_options.h"

namespace trencadis {

// Parses on every rank and makes sure that all ranks were told the same; else an error on all of them that names the
// difference. Collective.
TrainOptions agree_on_options(Communicator& world, const std::function<TrainOptions()>& parse);

}  // namespace trencadis
