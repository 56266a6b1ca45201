#include "models/trainer/model_options.h"

#include <filesystem>

#include "models/families.h"
#include "models/hugging_face/hugging_face.h"
#include "models/options/train_flags.h"
#include "zero/checkpoint/checkpoint_folder.h"

namespace trencadis {

namespace {

void check_is_folder(const std::string& folder) {
  if (!std::filesystem::is_directory(folder))
    throw DataError(
        fmt::format("--init-from {}: there is no such folder; name a Hugging Face folder, or a "
                    "checkpoint (out/step-XXXXXXXX)",
                    folder));
}

}  // namespace

bool is_checkpoint(const std::string& folder) { return std::filesystem::exists(folder + "/index.json"); }

ModelConfig model_config(const TrainOptions& o, int64_t vocab_size) {
  ModelConfig config;
  config.family = o.family;
  config.n_layer = o.n_layer;
  config.n_head = o.n_head;
  config.n_embd = o.n_embd;
  config.block_size = o.block_size;
  config.vocab_size = vocab_size;
  config.tied = !o.untied;
  config.dropout = static_cast<float>(o.dropout);
  config.activation_checkpointing = o.activation_checkpointing;
  return config;
}

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
  if (const std::string family = index.setting(kFamilySetting); !family.empty()) options.family = family;
  const FlagTable table = train_flags(options);
  for (const char* key : {"n-layer", "n-head", "n-embd", "block-size", "vocab-size", "untied"})
    if (const std::string value = index.setting(key); !value.empty())
      table.find(key)->set(fmt::format("{}: {}", folder, key), value);
  // Where the run took the vocabulary of its data, the table of tokens tells it.
  for (const CheckpointTensor& tensor : index.tensors)
    if (tensor.name == model_family(options.family).hugging_face.table) options.vocab_size = tensor.shape.front();
}

}  // namespace trencadis
