// GPT-2 as an entry of the table of families.
#pragma once

#include "models/family.h"

namespace trencadis {

const ModelFamily& gpt2_family();

}  // namespace trencadis
