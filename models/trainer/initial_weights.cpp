#include "models/trainer/initial_weights.h"

#include "dist/on_all_ranks.h"
#include "models/hugging_face/hugging_face.h"
#include "models/trainer/model_options.h"
#include "zero/checkpoint/checkpoints.h"

namespace trencadis {

void load_initial_weights(const std::string& folder, LanguageModel& model, ZeroEngine& engine, Context& context,
                          Communicator& world) {
  if (is_checkpoint(folder)) {
    std::vector<std::string> notes;
    load_checkpoint(*find_checkpoint("--init-from", folder, false, world, notes), engine, context, world,
                    /*with_states=*/false, /*as_saved=*/false);
    return;
  }
  on_all_ranks(world, [&] {
    const HuggingFaceModel source(folder);
    source.check(model);
    engine.set_parameters([&](const Parameter& parameter, int64_t first,
                              std::span<float> values) { source.read(parameter, first, values); },
                          [&](const Parameter& parameter, int64_t element, float value) {
                            return source.describe(parameter, element, value);
                          });
  });
}

}  // namespace trencadis
