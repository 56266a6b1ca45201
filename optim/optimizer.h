// Optimizer: updates slices of parameters in raw buffers.
//
// It never sees a model or a graph: whoever shards the state (zero/) hands it slices, and a slice of a parameter is
// updated exactly as the same elements of the whole would be. Groups are chosen by the logical shape of the whole
// parameter, not by what the flat slice looks like.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>

#include "runtime/context.h"
#include "runtime/tensor.h"

namespace trencadis {

inline constexpr int kMaxOptimizerStates = 2;

// Elements [first, first + param.size) of one parameter, with everything that belongs to them. All views have the same
// element count; `master` is f32 and may be the memory of `param`; unused states are empty.
struct ParamSlice {
  View param, master;
  ConstView gradient;
  std::array<View, kMaxOptimizerStates> states;
  Shape logical_shape;
  int64_t first = 0;
};

// What is the same for all slices of one step.
struct StepInfo {
  float lr = 0;
  int64_t t = 1;         // the step's number, from 1; steps that were skipped do not count
  float grad_scale = 1;  // multiplies each gradient
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual int state_count() const = 0;  // f32 states per element, zero at the start
  virtual std::string state_name(int i) const = 0;
  virtual void step(std::span<const ParamSlice> slices, const StepInfo& info, Kernels& kernels) const = 0;
};

// Weight decay applies to matrices (two dimensions or more) only.
struct AdamWOptions {
  float beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0.1f;
};
std::unique_ptr<Optimizer> make_adamw(AdamWOptions options);

struct SgdOptions {
  float momentum = 0.9f, weight_decay = 0;
};
std::unique_ptr<Optimizer> make_sgd(SgdOptions options);

}  // namespace trencadis
