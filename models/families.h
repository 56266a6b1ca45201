// The table of families. A new one touches its own folder and this table (families.cpp).
#pragma once

#include "models/family.h"

namespace trencadis {

const std::vector<const ModelFamily*>& model_families();
// Throws UsageError where there is no such family.
const ModelFamily& model_family(const std::string& name);
// A model of config.family.
std::unique_ptr<LanguageModel> make_model(const ModelConfig& config);

}  // namespace trencadis
