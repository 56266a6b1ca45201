// ModelFamily: all that the rest of the program knows of one kind of model. It is data, which a family's folder fills
// in and models/families.cpp lists.
#pragma once

#include <memory>
#include <string_view>

#include "models/language_model.h"

namespace trencadis {

// How folders of Hugging Face hold the models of a family: what they call config.json's keys and the parameters.
struct HuggingFaceNames {
  std::string model_type, architecture;  // "gpt2", "GPT2LMHeadModel"

  // A size of the model in config.json.
  struct Size {
    int64_t ModelConfig::*field;
    std::vector<std::string> names;  // all that transformers takes for the same
    size_t written = 1;              // the first ones of them are written
    int64_t otherwise = 0;           // what transformers takes where there is none
  };
  std::vector<Size> sizes;

  // Another key, with values as JSON.
  struct Key {
    std::string name;
    std::string written;  // empty: it is not
    // What a folder may say: a number like this one (as floats) or the same value; the key may always be missing or
    // null. Empty: whatever it says does not change the model, unless it must be missing.
    std::vector<std::string> supported = {};
    bool must_be_missing = false;  // or an empty list
  };
  // Of a model of these sizes.
  std::vector<Key> (*keys)(const ModelConfig& config) = nullptr;

  std::string prefix;  // of all names but the head's; a folder of a model without a head may leave it out
  // Of our parameters: the token table, the head, and the table of positions (empty: none), of which a model of a
  // smaller block_size takes the first rows.
  std::string table, head, positions;
  bool (*transposed)(std::string_view parameter) = nullptr;  // stored (in, out)
  bool (*no_weight)(std::string_view tensor) = nullptr;      // masks and the like, which files may hold beside them
};

struct ModelFamily {
  std::string name;
  std::unique_ptr<LanguageModel> (*make)(const ModelConfig& config) = nullptr;
  HuggingFaceNames hugging_face;
};

}  // namespace trencadis
