// `trencadis plan`: what each ZeRO stage would cost, for this model or for a bare number of parameters, without running
// anything.
#pragma once

#include <cstdint>
#include <string>

#include "models/language_model.h"

namespace trencadis {

struct PlanRequest {
  int world = 1;
  int64_t parameters = 0;  // a bare number; 0: plan the model
  ModelConfig model;
  int64_t batch_size = 1;
  int grad_accum = 1, prefetch = 1;
  bool reshard_after_forward = true;
  int64_t device_memory = 0;  // bytes of one rank; 0: not given
};

// A table with a row per stage, for Adam, then what SGD would hold, then what follows from it: the smallest stage that
// fits, when accumulation makes stage 1 cheaper than 2, when sharding is not worth its traffic. GB are 10^9 bytes, as
// memory is sold.
std::string plan_report(const PlanRequest& request);

}  // namespace trencadis
