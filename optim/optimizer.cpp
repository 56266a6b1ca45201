#include "optim/optimizer.h"

namespace trencadis {

namespace {

// The decay group of a parameter: matrices decay, vectors (biases, norms) do not.
float decay_of(const ParamSlice& slice, float weight_decay) {
  return slice.logical_shape.size() >= 2 ? weight_decay : 0.0f;
}

class AdamW final : public Optimizer {
 public:
  explicit AdamW(AdamWOptions options) : options_(options) {}
  int state_count() const override { return 2; }
  std::string state_name(int i) const override { return i == 0 ? "exp_avg" : "exp_avg_sq"; }

  void step(std::span<const ParamSlice> slices, const StepInfo& info, Kernels& kernels) const override {
    AdamWStep step;
    step.lr = info.lr;
    step.beta1 = options_.beta1;
    step.beta2 = options_.beta2;
    step.eps = options_.eps;
    step.t = info.t;
    step.grad_scale = info.grad_scale;
    for (const ParamSlice& slice : slices) {
      step.weight_decay = decay_of(slice, options_.weight_decay);
      kernels.adamw(slice.param, slice.master, slice.states[0], slice.states[1], slice.gradient, step);
    }
  }

 private:
  AdamWOptions options_;
};

class Sgd final : public Optimizer {
 public:
  explicit Sgd(SgdOptions options) : options_(options) {}
  int state_count() const override { return options_.momentum != 0 ? 1 : 0; }
  std::string state_name(int) const override { return "momentum"; }

  void step(std::span<const ParamSlice> slices, const StepInfo& info, Kernels& kernels) const override {
    SgdStep step;
    step.lr = info.lr;
    step.momentum = options_.momentum;
    step.t = info.t;
    step.grad_scale = info.grad_scale;
    for (const ParamSlice& slice : slices) {
      step.weight_decay = decay_of(slice, options_.weight_decay);
      kernels.sgd(slice.param, slice.master, slice.states[0], slice.gradient, step);
    }
  }

 private:
  SgdOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(AdamWOptions options) { return std::make_unique<AdamW>(options); }
std::unique_ptr<Optimizer> make_sgd(SgdOptions options) { return std::make_unique<Sgd>(options); }

}  // namespace trencadis
