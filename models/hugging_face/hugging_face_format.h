// What reading and writing a Hugging Face folder have in common: names, and config.json. What a family calls its keys
// and parameters stands in its own folder (models/family.h).
#pragma once

#include <string>

#include "models/family.h"
#include "runtime/dtype.h"

namespace trencadis::hugging_face {

inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

// Shape in the file of a parameter of shape `ours`.
Shape stored_shape(const HuggingFaceNames& names, const std::string& parameter, const Shape& ours);

// The model that a config.json describes. Throws one DataError with every key whose value this project cannot express,
// and what it can. Keys that do not change the model (dropout, tokens, generation, ...) are ignored.
ModelConfig parse_config(const std::string& text, const std::string& path);
// The config.json of a model whose weights are stored as dtype: of the keys of transformers 4 and 5 those that matter,
// and one of our own that says which tokens the model knows.
std::string config_text(const ModelConfig& config, DType dtype);
// Whether it is a config.json that config_text() wrote.
bool is_own_config(const std::string& text);

}  // namespace trencadis::hugging_face
