#include "models/families.h"

#include "models/gpt/family.h"
#include "runtime/check.h"

namespace trencadis {

const std::vector<const ModelFamily*>& model_families() {
  static const std::vector<const ModelFamily*> all = {&gpt2_family()};
  return all;
}

const ModelFamily& model_family(const std::string& name) {
  std::vector<std::string> names;
  for (const ModelFamily* family : model_families()) {
    if (family->name == name) return *family;
    names.push_back(family->name);
  }
  throw UsageError(fmt::format("there is no family of models '{}'; known: {}", name, fmt::join(names, ", ")));
}

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config) {
  return model_family(config.family).make(config);
}

}  // namespace trencadis
