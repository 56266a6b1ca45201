// The engine of a model that knows its units: it is the observer of its regions, and plans from what it heard.
#include "layers/unit_module.h"
#include "training.h"

namespace trencadis::test {
namespace {

// Two units, the first with two uses.
struct Loop : UnitModule {
  Linear ends{7, 7, Initialiser::normal(0.3f)}, middle{7, 7, Initialiser::normal(0.3f)};

  Loop() {
    add_unit("ends", ends);
    add_unit("middle", middle);
  }

  Variable forward(const Variable& x) const {
    return run(last_use_of(ends), run(middle, run(ends, x)), [this](const Variable& v) { return ends.forward(v); });
  }
};

struct Result {
  uint32_t digest = 0;
  StagePlan plan;
  BytesByCategory rest{}, peak{};
  std::string too_early;  // what predict() says before there was anything to hear
};

Result train(int stage, Communicator& world) {
  Context context(make_cpu_backend({.poison = true}));
  Loop model;
  const std::vector<float> x(14, 0.5f);
  const std::vector<int32_t> targets = {1, 6};
  const auto loss = [&](const Tensor& totals) {
    return softmax_cross_entropy(model.forward(Variable(Tensor::from(context, x, {2, 7}))),
                                 Tensor::from(context, targets, {2}), totals);
  };
  ZeroOptions options;
  options.stage = stage;
  Result result;
  {
    ZeroEngine engine(context, {&world}, model, make_adamw({}), options);
    try {
      engine.predict();
    } catch (const Error& error) {
      result.too_early = error.what();
    }
    for (int step = 0; step < 3; ++step) {
      if (step == 2) context.memory().reset_peak();
      engine.micro_batch(2, loss);
      engine.step(1e-2f);
    }
    result.peak = context.memory().peak();
    result.rest = context.memory().live();
    result.plan = engine.predict();
    result.digest = engine.digest();
  }
  // The model outlives its engine: whoever binds memory again may run it, and nobody that is gone hears of it.
  allocate_parameters(model, context, 1);
  backward(loss({}));
  return result;
}

TEST_CASE("an engine observes its model: the same bits in every stage, memory as it predicts from what it heard") {
  constexpr auto P = static_cast<size_t>(MemoryCategory::parameter), G = static_cast<size_t>(MemoryCategory::gradient),
                 O = static_cast<size_t>(MemoryCategory::optimizer);
  uint32_t digest = 0;
  for (int stage = 0; stage < kStages; ++stage) {
    CAPTURE(stage);
    std::array<Result, 2> results;
    on_ranks(2, {}, [&](Communicator& world) { results[static_cast<size_t>(world.rank())] = train(stage, world); });
    if (stage == 0) digest = results[0].digest;
    for (const Result& r : results) {
      CHECK(r.too_early.find("call micro_batch() first") != std::string::npos);
      CHECK(r.digest == digest);
      CHECK(r.rest[P] == r.plan.at_rest.parameter);
      CHECK(r.rest[G] == r.plan.at_rest.gradient);
      CHECK(r.rest[O] == r.plan.at_rest.optimizer);
      CHECK(r.peak[P] == r.plan.peak.parameter);
      CHECK(r.peak[G] == r.plan.peak.gradient);
      CHECK(r.peak[O] == r.plan.peak.optimizer);
    }
  }
}

TEST_CASE("a parameter that is used outside of its unit's regions is named, in every stage") {
  struct Careless : UnitModule {
    Linear inside{7, 7}, outside{7, 7};
    Careless() {
      add_unit("inside", inside);
      add_unit("outside", outside);
    }
    Variable forward(const Variable& x) const { return outside.forward(run(inside, x)); }
  };
  for (int stage = 0; stage < kStages; ++stage) {
    CAPTURE(stage);
    const auto errors = errors_on_ranks(2, {}, [&](Communicator& world) {
      Context context(make_cpu_backend({.poison = true}));
      Careless model;
      ZeroEngine engine(context, {&world}, model, make_adamw({}), {.stage = stage});
      engine.micro_batch(2, [&](const Tensor& totals) {
        return softmax_cross_entropy(model.forward(Variable(Tensor::zeros(context, {2, 7}))),
                                     Tensor::from(context, std::vector<int32_t>{1, 6}, {2}), totals);
      });
    });
    for (const std::string& error : errors) {
      CAPTURE(error);
      CHECK(error.find("outside") != std::string::npos);
      CHECK((error.find("use it inside run()") != std::string::npos) == (stage < 3));
    }
  }
}

}  // namespace
}  // namespace trencadis::test
