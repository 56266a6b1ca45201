#include "models/trainer/initial_weights.h"

#include <filesystem>

#include "dist/on_all_ranks.h"
#include "models/families.h"
#include "models/hugging_face/hugging_face.h"
#include "models/options/train_flags.h"
#include "zero/checkpoint/checkpoint_folder.h"
#include "zero/checkpoint/checkpoints.h"

namespace trencadis {

namespace {

bool is_checkpoint(const std::string& folder) { return std::filesystem::exists(folder + "/index.json"); }

void check_is_folder(const std::string& folder) {
  if (!std::filesystem::is_directory(folder))
    throw DataError(
        fmt::format("--init-from {}: there is no such folder; name a Hugging Face folder of GPT-2, or a "
                    "checkpoint (out/step-XXXXXXXX)",
                    folder));
}

}  // namespace

void set_sizes_from(TrainOptions& options, const std::string& folder) {
  check_is_folder(folder);
  if (!is_checkpoint(folder)) {
    const ModelConfig config = HuggingFaceModel(folder).config();
    options.family = config.family;
    options.n_layer = config.n_layer;
    options.n_head = config.n_head;
    options.n_embd = config.n_embd;
    options.block_size = config.block_size;
    options.vocab_size = config.vocab_size;
    options.untied = !config.tied;
    return;
  }
  const CheckpointIndex index = read_candidate(folder).index;
  const FlagTable table = train_flags(options);
  for (const char* key : {"n-layer", "n-head", "n-embd", "block-size", "vocab-size", "untied"})
    if (const std::string value = index.setting(key); !value.empty())
      table.find(key)->set(fmt::format("{}: {}", folder, key), value);
  // Where the run took the vocabulary of its data, the table of tokens tells it.
  for (const CheckpointTensor& tensor : index.tensors)
    if (tensor.name == model_family(options.family).hugging_face.table) options.vocab_size = tensor.shape.front();
}

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
