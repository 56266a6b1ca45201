#include "models.h"

#include <cmath>
#include <deque>
#include <thread>

namespace trencadis::test {

namespace {

// -- GPT --------------------------------------------------------------------------------------------------------------

class GptModel final : public TestModel {
 public:
  explicit GptModel(GptSetup setup) : setup_(std::move(setup)), model_(setup_.config) {
    if (setup_.frozen)
      for (Parameter* p : model_.parameters())
        if (setup_.frozen(p->name)) p->freeze();
  }
  std::vector<Unit> units() override { return model_.units(); }
  std::vector<RegionUse> uses() const override { return model_.uses(); }
  void observe(RegionObserver* observer) override { model_.set_observer(observer); }
  int64_t tokens() const override { return setup_.B * setup_.T; }

  Variable loss(Context& context, const MicroBatch& batch, const Tensor& totals) override {
    std::vector<int32_t> targets = draw(batch.number, 1);
    const int64_t valid = setup_.valid_targets ? setup_.valid_targets(batch) : tokens();
    for (int64_t i = valid; i < tokens(); ++i) targets[static_cast<size_t>(i)] = -1;
    const Shape shape = {setup_.B, setup_.T};
    ForwardState state;
    state.training = true;
    state.seed = 5;
    state.step = batch.step;
    state.first_sample = batch.number * setup_.B;
    return model_.loss(Tensor::from(context, draw(batch.number, 0), shape), Tensor::from(context, targets, shape),
                       state, totals);
  }

  std::vector<float> evaluate(Context& context) override {
    return model_.logits(Tensor::from(context, draw(12345, 0), {setup_.B, setup_.T}), {}).value().to_vector();
  }

 private:
  std::vector<int32_t> draw(int64_t number, uint64_t what) const {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < tokens(); ++i) {
      const uint64_t word = random_key(static_cast<uint64_t>(number), what, static_cast<uint64_t>(i));
      ids.push_back(static_cast<int32_t>(word % static_cast<uint64_t>(setup_.config.vocab_size)));
    }
    return ids;
  }

  GptSetup setup_;
  GPT model_;
};

// -- toy --------------------------------------------------------------------------------------------------------------

struct ToyUnit : Module {
  explicit ToyUnit(const std::vector<Shape>& shapes) {
    for (size_t i = 0; i < shapes.size(); ++i)
      add_parameter(fmt::format("p{}", i), list.emplace_back(), shapes[i], Initialiser::normal(1));
  }
  std::deque<Parameter> list;  // a deque: the base class has their addresses
};

class Toy final : public TestModel, private Module {
 public:
  explicit Toy(ToySetup setup) : setup_(std::move(setup)) {
    for (const auto& shapes : setup_.units) list_.push_back(std::make_unique<ToyUnit>(shapes));
    for (size_t u = 0; u < list_.size(); ++u) add_child(fmt::format("u{}", u), *list_[u]);
    assign_names();
    if (setup_.frozen)
      for (Parameter* p : parameters())
        if (setup_.frozen(p->name)) p->freeze();
  }

  std::vector<Unit> units() override {
    std::vector<Unit> units;
    for (const auto& unit : list_) units.push_back({unit->full_name(), unit->parameters()});
    return units;
  }
  std::vector<RegionUse> uses() const override { return uses_of({}); }
  void observe(RegionObserver* observer) override { observer_ = observer; }
  int64_t tokens() const override { return 2; }

  Variable loss(Context& context, const MicroBatch& batch, const Tensor& totals) override {
    const Variable x = forward(context, batch);
    auto* words = totals.data<int64_t>();
    words[kLossTokens] += tokens();
    words[kLossFixedPoint] += std::llround(static_cast<double>(x.value().item()) / kLossUnit);
    return x;
  }
  std::vector<float> evaluate(Context& context) override { return forward(context, {}).value().to_vector(); }

 private:
  std::vector<RegionUse> uses_of(const MicroBatch& batch) const {
    std::vector<int> order;
    if (setup_.order)
      order = setup_.order(batch);
    else
      for (size_t u = 0; u < list_.size(); ++u) order.push_back(static_cast<int>(u));
    std::vector<RegionUse> uses;
    for (int u : order) {
      uses.emplace_back().unit = u;
      uses.back().name = list_[static_cast<size_t>(u)]->full_name();
      uses.back().backward_needs_parameters = !linear(u);
    }
    uses.back().backward_follows = true;
    return uses;
  }

  Variable forward(Context& context, const MicroBatch& batch) {
    Variable x(Tensor::zeros(context, {1}));
    for (const RegionUse& use : uses_of(batch)) {
      const bool recompute = setup_.checkpointing && !use.backward_follows;
      const Variable y =
          region(observer_, use, recompute, {x}, [=, this](const std::vector<Variable>& in) -> std::vector<Variable> {
            return {probe(in[0], batch, use.unit)};
          })[0];
      if (!setup_.dropped || !setup_.dropped(use.unit)) x = y;
    }
    return x;
  }

  // One op for all parameters of a unit. Ranks must agree on every bit, so it is one loop in one order.
  Variable probe(const Variable& x, const MicroBatch& batch, int unit) const {
    std::vector<Variable> parameters;
    for (Parameter& p : list_[static_cast<size_t>(unit)]->list)
      if (!setup_.used || setup_.used(batch, p.name)) parameters.push_back(p.variable);
    work(batch, unit, false);
    double sum = x.value().item();
    for (const Variable& p : parameters) {
      const auto* values = p.value().data<float>();
      for (int64_t i = 0; i < p.value().size(); ++i) {
        // A coefficient that is not finite is meant for the gradient: the loss stays a number.
        const float c = coefficient(batch, p.name(), i);
        if (std::isfinite(c)) sum += static_cast<double>(c) * values[i] * (linear(unit) ? 1 : 0.5 * values[i]);
      }
    }
    Tensor y = Tensor::from(x.value().context(), std::vector<float>{static_cast<float>(sum)}, {1});
    auto backward = [=, this](Tensors g) -> Tensors {
      work(batch, unit, true);
      const float dy = g[0].item();
      for (Variable p : parameters) {
        if (!p.requires_grad()) continue;
        const auto* values = linear(unit) ? nullptr : p.value().data<float>();
        const GradientTarget target = p.gradient_target();
        auto* gradient = target.view.as<float>();
        for (int64_t i = 0; i < p.value().size(); ++i) {
          const float d = dy * coefficient(batch, p.name(), i) * (values ? values[i] : 1.0f);
          gradient[i] = target.accumulate ? gradient[i] + d : d;
        }
      }
      return {g[0]};
    };
    return record("probe", {x}, std::move(y), std::move(backward), parameters);
  }

  float coefficient(const MicroBatch& batch, const std::string& parameter, int64_t element) const {
    if (setup_.coefficient) return setup_.coefficient(batch, parameter, element);
    const uint64_t word =
        random_key(static_cast<uint64_t>(batch.number), hash_name(parameter), static_cast<uint64_t>(element));
    return static_cast<float>(word >> 40) * (2.0f / (1 << 24)) - 1.0f;
  }
  bool linear(int unit) const { return setup_.linear && setup_.linear(unit); }
  void work(const MicroBatch& batch, int unit, bool backward) const {
    if (setup_.work) std::this_thread::sleep_for(setup_.work(batch.rank, unit, backward));
  }

  ToySetup setup_;
  std::vector<std::unique_ptr<ToyUnit>> list_;
  RegionObserver* observer_ = nullptr;
};

}  // namespace

MakeModel gpt(GptSetup setup) {
  return [=] { return std::make_unique<GptModel>(setup); };
}
MakeModel toy(ToySetup setup) {
  return [=] { return std::make_unique<Toy>(setup); };
}

std::vector<std::vector<Shape>> equal_units(int count, int parameters, int64_t size) {
  return std::vector<std::vector<Shape>>(static_cast<size_t>(count),
                                         std::vector<Shape>(static_cast<size_t>(parameters), Shape{size}));
}

}  // namespace trencadis::test
