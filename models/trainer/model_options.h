// Which model the options describe, and options that describe the model of a folder: what training, planning and
// exporting have in common.
#pragma once

#include <string>

#include "models/language_model.h"
#include "models/options/train_options.h"

namespace trencadis {

// vocab_size: that of the data, where the options leave it open.
ModelConfig model_config(const TrainOptions& options, int64_t vocab_size);

// Family and sizes of the weights in a folder (layers, heads, channels, sequence, vocabulary, whether the head is tied):
// a Hugging Face folder's, or a checkpoint's. Reads no weights; not collective. DataError: there is no such folder, or
// its model is none of ours.
void set_sizes_from(TrainOptions& options, const std::string& folder);

// Whether the folder is a checkpoint of this program.
bool is_checkpoint(const std::string& folder);

// How a checkpoint's index calls the family among the run's settings; older ones have none and are GPT-2's.
inline constexpr const char* kFamilySetting = "family";

}  // namespace trencadis
