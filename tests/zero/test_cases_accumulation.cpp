// Cases from the field, third part: accumulation, clipping, optimizer. Each test names its case.
#include <cmath>
#include <limits>

#include "training.h"

namespace trencadis::test {

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Norms {
  double two = 0, inf = 0;
};
// Of gradients as they are collected: sums over micro-batches, each scaled by 1/(B T).
Norms norms_of(const Values& gradients, double scale) {
  Norms norms;
  for (const auto& [name, values] : gradients)
    for (float v : values) {
      const double g = static_cast<double>(v) * scale;
      norms.two += g * g;
      norms.inf = std::max(norms.inf, std::abs(g));
    }
  norms.two = std::sqrt(norms.two);
  return norms;
}

Values scaled(Values values, double factor) {
  for (auto& [name, list] : values)
    for (float& v : list) v = static_cast<float>(v * factor);
  return values;
}
Values sum(Values a, const Values& b) {
  for (auto& [name, list] : a)
    for (size_t i = 0; i < list.size(); ++i) list[i] += b.at(name)[i];
  return a;
}

}  // namespace

TEST_CASE("case: last micro-batch added after the reduction: ga = 4 equals one process with 4 W") {
  for (int world : {2, 3}) {
    Config config;
    config.grad_accum = 4 * world;
    config.clip = 0.5f;
    const Run expected = run(config);
    config.grad_accum = 4;
    config.world = world;
    for (int stage : {0, 1, 2, 3}) {
      config.stage = stage;
      const Run got = run(config);
      INFO(config.describe());
      CHECK(got.steps[0].result.tokens == 4 * world * 10);
      CHECK(got.steps[0].result.loss == expected.steps[0].result.loss);  // summed in integers: no order
      CHECK(relative_error(got.first_gradients, expected.first_gradients) < 1e-5);
      if (stage >= 2) CHECK(difference(got, expected) == "");
    }
  }
}

TEST_CASE("case: norm of the local shard: norms for p = 2 and inf, and the clipped update, equal one process") {
  for (int world : {1, 2, 3})
    for (int stage : {0, 1, 2, 3}) {
      Config config;
      config.stage = stage;
      config.world = world;
      config.grad_accum = 6 / world;
      config.steps = 1;
      config.clip = 0;
      const Run free = run(config);
      INFO(config.describe());
      // The mean over all tokens: 6 micro-batches, each scaled by its own 1/(B T).
      const Norms norms = norms_of(free.first_gradients, 1.0 / 6);
      const StepResult& result = free.steps[0].result;
      CHECK(result.grad_norm == doctest::Approx(norms.two).epsilon(1e-6));
      CHECK(result.grad_max == doctest::Approx(norms.inf).epsilon(1e-12));
      CHECK(result.grad_norm > 0.2);

      // Clipping below the norm changes neither what is reported nor what is collected; above it, nothing at all.
      config.clip = 0.1f;
      const Run clipped = run(config);
      CHECK(clipped.steps[0].result.grad_norm == result.grad_norm);
      CHECK(difference(clipped.first_gradients, free.first_gradients) == "");
      // Adam's first moment is (1-beta1) times the gradient it was given, so it shows the factor.
      const double factor = 0.1 / result.grad_norm;
      CHECK(relative_error(clipped.moments[0], scaled(free.moments[0], factor)) < 1e-5);
      config.clip = 1000;
      CHECK(difference(run(config), free) == "");
    }
}

TEST_CASE("case: replicated parameter counted W times") {
  // Every gradient element is p_i times a coefficient of 1, on every rank and in every micro-batch.
  ToySetup setup;
  setup.units = {{{5}, {7}}, {{3, 3}}, {{2}}};
  setup.coefficient = [](const MicroBatch&, const std::string&, int64_t) { return 1.0f; };
  for (int world : {1, 2, 3, 4})
    for (int stage : {0, 1, 2, 3}) {
      Config config;
      config.model = toy(setup);
      config.stage = stage;
      config.world = world;
      config.steps = 1;
      const Run got = run(config);
      INFO(config.describe());
      // Two tokens a micro-batch: the mean gradient of the summed loss is half of p, whatever W is.
      CHECK(got.steps[0].result.grad_norm == doctest::Approx(norms_of(got.start, 0.5).two).epsilon(1e-6));
    }
}

TEST_CASE("case: overflow seen by one rank; clip times inf") {
  for (float poison : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()})
    for (float clip : {0.0f, 0.1f})
      for (int stage : {0, 1, 2, 3}) {
        // Unit 1 has 24 elements: at W = 2 the last ones are rank 1's. Only rank 1's micro-batch has the fault.
        ToySetup setup;
        setup.units = {{{5}}, {{24}}, {{3}}};
        setup.coefficient = [=](const MicroBatch& batch, const std::string& name, int64_t i) {
          if (batch.number == 3 && name == "u1.p0" && i == 20) return poison;  // step 1, rank 1
          return 0.25f + 0.125f * static_cast<float>((batch.number + i) % 5);
        };
        Config config;
        config.model = toy(setup);
        config.stage = stage;
        config.world = 2;
        config.clip = clip;
        config.steps = 4;
        const Run got = run(config);
        INFO(config.describe());
        CHECK(got.steps_skipped == 1);
        CHECK(got.steps_taken == 3);
        for (size_t s = 0; s < 4; ++s) CHECK(got.steps[s].result.skipped == (s == 1));
        CHECK(!std::isfinite(got.steps[1].result.grad_norm));
        CHECK(std::isfinite(got.steps[1].result.loss));
        CHECK(got.steps[1].digests == got.steps[0].digests);
        CHECK(got.steps[2].digests != got.steps[1].digests);
        CHECK(all_finite(got.parameters));
        CHECK(all_finite(got.moments[0]));
        CHECK(all_finite(got.moments[1]));

        // Adam's t has not advanced: a run that never saw the bad micro-batches ends with the same bits.
        Config spared = config;
        ToySetup without = setup;
        without.coefficient = [=](const MicroBatch& batch, const std::string& name, int64_t i) {
          MicroBatch shifted = batch;
          if (batch.step >= 1) shifted.number += 2;
          return setup.coefficient(shifted, name, i);
        };
        spared.model = toy(without);
        spared.steps = 3;
        const Run expected = run(spared);
        CHECK(difference(got.parameters, expected.parameters) == "");
        CHECK(difference(got.moments[1], expected.moments[1]) == "");
      }
}

TEST_CASE("case: overflow in an earlier micro-batch is not forgotten, and is gone in the next step") {
  for (int stage : {0, 1, 2, 3}) {
    ToySetup setup;
    setup.units = {{{5}}, {{24}}, {{3}}};
    setup.coefficient = [=](const MicroBatch& batch, const std::string& name, int64_t i) {
      return batch.number == 1 && name == "u2.p0" && i == 0 ? kInf : 0.5f;  // step 0, first micro-batch of rank 1
    };
    Config config;
    config.model = toy(setup);
    config.stage = stage;
    config.world = 2;
    config.grad_accum = 3;
    config.steps = 2;
    const Run got = run(config);
    INFO(config.describe());
    CHECK(got.steps[0].result.skipped);
    CHECK(!got.steps[1].result.skipped);
    CHECK(all_finite(got.parameters));
  }
}

TEST_CASE("case: unequal token counts: loss and gradient are the mean over 12") {
  // Rank 0 has 3 valid targets of 10, rank 1 has 9.
  const auto valid = [](const MicroBatch& batch) { return batch.number % 2 == 0 ? 3 : 9; };
  GptSetup setup;
  setup.valid_targets = valid;
  Config config;
  config.model = gpt(setup);
  config.grad_accum = 2;
  const Run expected = run(config);

  // Each micro-batch alone, as the mean over its own tokens.
  std::array<Run, 2> alone;
  for (int64_t which : {0, 1}) {
    GptSetup only = setup;
    only.valid_targets = [=](const MicroBatch& batch) { return batch.number == which ? valid(batch) : 0; };
    Config one = config;
    one.model = gpt(only);
    one.steps = 1;
    alone[static_cast<size_t>(which)] = run(one);
    CHECK(alone[static_cast<size_t>(which)].steps[0].result.tokens == (which == 0 ? 3 : 9));
  }
  const double loss = (3 * alone[0].steps[0].result.loss + 9 * alone[1].steps[0].result.loss) / 12;

  config.grad_accum = 1;
  config.world = 2;
  for (int stage : {0, 1, 2, 3}) {
    config.stage = stage;
    const Run got = run(config);
    INFO(config.describe());
    CHECK(got.steps[0].result.tokens == 12);
    CHECK(got.steps[0].result.loss == doctest::Approx(loss).epsilon(1e-7));
    CHECK(difference(got, expected) == "");
    // Collected gradients are sums of per-token gradients / 10: so the two alone add up to both together,
    CHECK(relative_error(got.first_gradients, sum(alone[0].first_gradients, alone[1].first_gradients)) < 1e-6);
    // and their mean over 12 is what the norm is of, and what the optimizer is given.
    CHECK(got.steps[0].result.grad_norm == doctest::Approx(norms_of(got.first_gradients, 10.0 / 12).two).epsilon(1e-6));
  }
}

TEST_CASE("case: a rank without any valid token, and a step without one") {
  for (int stage : {0, 1, 2, 3}) {
    GptSetup setup;
    setup.valid_targets = [](const MicroBatch& batch) { return batch.step == 1 || batch.number % 2 == 0 ? 0 : 7; };
    Config config;
    config.model = gpt(setup);
    config.stage = stage;
    config.world = 2;
    config.steps = 3;
    const Run got = run(config);
    INFO(config.describe());
    CHECK(got.steps[0].result.tokens == 7);
    CHECK(std::isfinite(got.steps[0].result.loss));
    CHECK(got.steps[1].result.skipped);
    CHECK(got.steps_taken == 2);
    CHECK(all_finite(got.parameters));
  }
}

TEST_CASE("case: two groups: decay is chosen from the logical shape, not from the flat slice") {
  // The gradient is 0, so a step is the decay alone: p - lr * decay * p for matrices, and nothing for vectors.
  ToySetup setup;
  setup.units = {{{3, 5}, {15}}, {{7}, {2, 2, 2}}};
  setup.coefficient = [](const MicroBatch&, const std::string&, int64_t) { return 0.0f; };
  for (int stage : {0, 1, 2, 3})
    for (int world : {1, 2, 3, 4}) {
      Config config;
      config.model = toy(setup);
      config.stage = stage;
      config.world = world;
      config.steps = 1;
      config.lr = 0.5f;
      const Run got = run(config);
      INFO(config.describe());
      for (const char* vector : {"u0.p1", "u1.p0"}) CHECK(got.parameters.at(vector) == got.start.at(vector));
      for (const char* matrix : {"u0.p0", "u1.p1"})
        for (size_t i = 0; i < got.start.at(matrix).size(); ++i)
          CHECK(got.parameters.at(matrix)[i] == doctest::Approx(got.start.at(matrix)[i] * 0.95).epsilon(1e-6));
    }
}

TEST_CASE("case: frozen parameters: never reduced, unchanged, no optimizer state") {
  GptSetup layers, biases;
  layers.frozen = [](const std::string& name) { return name.starts_with("h.0.") || name.starts_with("h.2."); };
  biases.frozen = [](const std::string& name) { return name.ends_with("bias"); };
  for (const GptSetup& setup : {layers, biases}) {
    Config config;
    config.model = gpt(setup);
    config.grad_accum = 6;
    config.clip = 0.5f;
    const Run expected = run(config);
    config.grad_accum = 2;
    config.world = 3;
    for (int stage : {0, 1, 2, 3}) {
      config.stage = stage;
      const Run got = run(config);
      INFO(config.describe());
      if (stage >= 2) CHECK(difference(got, expected) == "");
      for (const auto& [name, values] : got.start) {
        const bool frozen = setup.frozen(name);
        CHECK((got.parameters.at(name) == values) == frozen);
        CHECK(got.moments[0].contains(name) == !frozen);
        CHECK(got.first_gradients.contains(name) == !frozen);
      }
    }
  }
}

TEST_CASE("case: state made by a dummy step: built, and nothing stepped") {
  for (int stage : {0, 1, 2, 3}) {
    Config config;
    config.stage = stage;
    config.world = 2;
    config.steps = 0;
    const Run got = run(config);
    INFO(config.describe());
    CHECK(got.steps_taken == 0);
    CHECK(got.steps_skipped == 0);
    CHECK(difference(got.parameters, got.start) == "");
    for (const Values& moment : got.moments) {
      CHECK(moment.size() == got.start.size());
      for (const auto& [name, values] : moment) CHECK(values == std::vector<float>(values.size(), 0.0f));
    }
  }
}

TEST_CASE("case: dropout under recompute") {
  for (int stage : {0, 1, 2, 3}) {
    Config config;
    config.stage = stage;
    config.world = 2;
    config.grad_accum = 2;
    GptSetup setup;
    setup.config.dropout = 0.5f;
    config.model = gpt(setup);
    const Run without = run(config);
    setup.config.activation_checkpointing = true;
    config.model = gpt(setup);
    const Run with = run(config);
    INFO(config.describe());
    CHECK(difference(with.first_gradients, without.first_gradients) == "");
    CHECK(difference(with, without) == "");
    setup.config.dropout = 0;
    config.model = gpt(setup);
    CHECK(difference(run(config).first_gradients, without.first_gradients) != "");  // there was something to drop
  }
}

TEST_CASE("a flag that one rank raises is seen by all") {
  std::array<int64_t, 3> seen{};
  Config config;
  config.stage = 1;
  config.world = 3;
  on_ranks(3, config.comm, [&](Communicator& comm) {
    Rank rank(config, comm);
    rank.micro_batch(0);
    seen[static_cast<size_t>(comm.rank())] = rank.engine->step(0.01f, comm.rank() == 1 ? 7 : 0).flag;
  });
  CHECK(seen == std::array<int64_t, 3>{7, 7, 7});
}

}  // namespace trencadis::test
