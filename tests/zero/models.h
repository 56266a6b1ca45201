// The models that the tests of zero/ train: a small GPT, and a toy whose gradients a test writes down by hand.
//
// Both are made anew on every rank, and what they compute depends on the micro-batch's number alone, never on the rank:
// so one process that works through the same numbers is the truth for every way of sharing them out.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/gpt/gpt.h"

namespace trencadis::test {

struct MicroBatch {
  int64_t step = 0;
  int64_t number = 0;  // over the whole run: step * W * ga + a * W + r
  int rank = 0;        // who computes it; only for delays and planted faults
};

class TestModel {
 public:
  virtual ~TestModel() = default;
  virtual std::vector<Unit> units() = 0;
  virtual std::vector<RegionUse> uses() const = 0;  // of loss(), in the order of forward
  virtual void observe(RegionObserver* observer) = 0;
  virtual int64_t tokens() const = 0;  // of a micro-batch: B*T
  virtual Variable loss(Context& context, const MicroBatch& batch, const Tensor& totals) = 0;
  virtual std::vector<float> evaluate(Context& context) = 0;  // some outputs, for use inside ZeroEngine::evaluate
};
using MakeModel = std::function<std::unique_ptr<TestModel>()>;

// C and V are prime and every size is odd where it can be, so that no parameter and no unit divides evenly.
struct GptSetup {
  ModelConfig config = {.n_layer = 3, .n_head = 1, .n_embd = 7, .block_size = 6, .vocab_size = 29};
  int64_t B = 2, T = 5;  // T < block_size: the last position's row gets no gradient
  std::function<bool(const std::string& parameter)> frozen;
  std::function<int64_t(const MicroBatch&)> valid_targets;  // the first so many of B*T; default: all
};
MakeModel gpt(GptSetup setup = {});

// Unit u has the parameters u<u>.p0, u<u>.p1, ... A use of it is x -> x + sum over its elements of c p^2 / 2:
// so dL/dp = c p, which needs p in forward and in backward, and x passes through.
// c belongs to (micro-batch, parameter, element).
struct ToySetup {
  std::vector<std::vector<Shape>> units;
  bool checkpointing = false;
  std::function<std::vector<int>(const MicroBatch&)> order;  // of units in forward; default: 0, 1, 2, ...
  std::function<float(const MicroBatch&, const std::string& parameter, int64_t element)> coefficient;  // default: drawn
  std::function<bool(const MicroBatch&, const std::string& parameter)> used;                           // default: all
  std::function<bool(int unit)> linear;                                                                // default: none
  std::function<bool(int unit)> dropped;  // its output reaches nothing: no backward comes; default: none
  std::function<bool(const std::string& parameter)> frozen;
  std::function<std::chrono::milliseconds(int rank, int unit, bool backward)> work;  // computing takes so long
};
MakeModel toy(ToySetup setup);

// `count` units of `parameters` vectors of `size` elements each.
std::vector<std::vector<Shape>> equal_units(int count, int parameters, int64_t size);

}  // namespace trencadis::test
