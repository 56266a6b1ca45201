// --init-from: weights that a new training starts from, instead of random numbers. They come from a Hugging Face folder
// of any family (models/hugging_face), or from a checkpoint of this program (zero/checkpoint), of which the optimizer's
// state is left where it is: Adam starts at its first step, with moments of zero.
#pragma once

#include <string>

#include "dist/communicator.h"
#include "models/language_model.h"
#include "zero/engine.h"

namespace trencadis {

// Collective. Throws Agreed<DataError> where the folder holds another model, naming each difference.
void load_initial_weights(const std::string& folder, LanguageModel& model, ZeroEngine& engine, Context& context,
                          Communicator& world);

}  // namespace trencadis
