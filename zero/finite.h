// Values from files, looked at before they are trained on: one NaN makes every loss a NaN, and the run then blames the
// learning rate.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/tensor.h"

namespace trencadis {

// The first value that is infinite or NaN; -1: none.
int64_t first_not_finite(std::span<const float> values);
int64_t count_not_finite(std::span<const float> values);

// Where element `index` of a tensor of this shape stands, and what it is: "h.0.mlp.c_fc.weight[7,3] is nan".
std::string describe_element(const std::string& tensor, const Shape& shape, int64_t index, float value);

}  // namespace trencadis
