// Region: one use of a unit of the model, as one node of the tape.
//
// Sharding must know when a unit's parameters are about to be read and when its gradients are complete; activation
// checkpointing must run a piece of forward again. Both are questions about a stretch of the graph, so the stretch is
// made visible: a region runs its function on detached inputs, keeps the graph made inside to itself, and is one node
// outside. Its observer (the ZeRO engine) sees four moments: before and after the forward, before and after the
// backward, and no hook hangs on any single parameter.
//
//   forward:   before_forward   run                          after_forward
//   backward:  before_backward  [run again if recompute]  run the inner graph backwards   after_backward
#pragma once

#include "autograd/variable.h"

namespace trencadis {

// What one use of a unit looks like to its observer.
struct RegionUse {
  int unit = 0;                           // index into the model's units
  std::string name;                       // for errors and traces
  bool recording = false;                 // grad mode was on: a backward of this use will come
  bool backward_needs_parameters = true;  // false: backward reads no weights (an embedding)
  bool backward_follows = false;          // the next region to run is this one's backward (the loss)
};

class RegionObserver {
 public:
  virtual ~RegionObserver() = default;
  virtual void before_forward(const RegionUse& use) = 0;
  virtual void after_forward(const RegionUse& use) = 0;
  virtual void before_backward(const RegionUse& use) = 0;
  virtual void after_backward(const RegionUse& use) = 0;
};

using RegionFunction = std::function<std::vector<Variable>(const std::vector<Variable>&)>;

// Runs `run` on `inputs` as a region. observer may be null. With `recompute` only the inputs are kept from forward to
// backward, and run is called again there: it must give the same values (dropout does: its masks are counters).
// `run` may read parameters and constants besides its inputs, but no variable that needs a gradient from outside.
std::vector<Variable> region(RegionObserver* observer, RegionUse use, bool recompute,
                             const std::vector<Variable>& inputs, const RegionFunction& run);

}  // namespace trencadis
