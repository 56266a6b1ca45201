// Promise 2: the bytes of parameters, gradients and optimizer state on a rank are those that were predicted from the
// configuration alone, at rest and at the peak inside a step, to the byte.
#include "training.h"

namespace trencadis::test {

namespace {

StateBytes state_bytes(const BytesByCategory& bytes) {
  const auto of = [&](MemoryCategory category) { return bytes[static_cast<size_t>(category)]; };
  return {of(MemoryCategory::parameter), of(MemoryCategory::gradient), of(MemoryCategory::optimizer)};
}

std::string text(const StateBytes& b) { return fmt::format("P {} G {} O {}", b.parameter, b.gradient, b.optimizer); }

bool at_most(const StateBytes& a, const StateBytes& b) {
  return a.parameter <= b.parameter && a.gradient <= b.gradient && a.optimizer <= b.optimizer;
}

// What a run of at least three steps must show, whatever its configuration.
void check_memory(const Config& config) {
  const Run got = run(config);
  INFO(config.describe());
  for (size_t r = 0; r < static_cast<size_t>(config.world); ++r) {
    // Building the engine takes what is held at rest, not a byte more at any moment.
    CHECK(text(state_bytes(got.peak_of_start[r])) == text(got.plan.at_rest));
    for (size_t s = 0; s < got.steps.size(); ++s) {
      const StepLog& step = got.steps[s];
      CHECK(text(state_bytes(step.before[r])) == text(got.plan.at_rest));
      CHECK(step.before[r] == got.steps[0].before[r]);  // every category, not only the predicted ones
      CHECK(step.before[r][static_cast<size_t>(MemoryCategory::activation)] == 0);
      // The order of uses is not known in the first micro-batch of all, so that one prefetches nothing.
      if (s == 0)
        CHECK(at_most(state_bytes(step.peak[r]), got.plan.peak));
      else
        CHECK(text(state_bytes(step.peak[r])) == text(got.plan.peak));
    }
    CHECK(got.after_end[r] == BytesByCategory{});
  }
}

GptSetup small(bool tied, bool checkpointing) {
  GptSetup setup;
  setup.config.tied = tied;
  setup.config.activation_checkpointing = checkpointing;
  return setup;
}

}  // namespace

TEST_CASE("memory: at rest and at the peak as predicted, to the byte") {
  for (int stage : {0, 1, 2, 3})
    for (int world : {1, 2, 3, 4})
      for (int grad_accum : {1, 3})
        for (int prefetch : {0, 1, 2, 7})
          for (bool reshard : {true, false})
            for (bool tied : {true, false}) {
              if (!reshard && stage != 3) continue;
              if (kReduced && (world + prefetch + tied) % 3 != 0) continue;
              Config config;
              config.model = gpt(small(tied, prefetch == 2));
              config.stage = stage;
              config.world = world;
              config.grad_accum = grad_accum;
              config.prefetch = prefetch;
              config.reshard = reshard;
              config.steps = 3;
              check_memory(config);
            }
}

TEST_CASE("memory: frozen parameters have neither gradient nor optimizer state, and peaks are still as predicted") {
  GptSetup every_other_layer = small(true, false), biases = small(false, true), blocks = small(true, false);
  every_other_layer.config.n_layer = 4;
  every_other_layer.frozen = [](const std::string& name) {
    return name.starts_with("h.0.") || name.starts_with("h.2.");
  };
  biases.frozen = [](const std::string& name) { return name.ends_with("bias"); };
  blocks.frozen = [](const std::string& name) { return name.starts_with("h."); };
  for (const GptSetup& setup : {every_other_layer, biases, blocks})
    for (int stage : {0, 1, 2, 3})
      for (int grad_accum : {1, 2}) {
        Config config;
        config.model = gpt(setup);
        config.stage = stage;
        config.world = 3;
        config.grad_accum = grad_accum;
        config.steps = 3;
        check_memory(config);
      }
}

TEST_CASE("memory: units of very unequal sizes, in an order that is not that of registration") {
  ToySetup setup;
  setup.units = {{{1001}}, {{3}, {5}}, {{400}, {33, 3}}, {{2}}};
  setup.order = [](const MicroBatch&) { return std::vector<int>{3, 0, 2, 0, 1}; };
  for (int stage : {0, 1, 2, 3})
    for (int prefetch : {0, 1, 2, 3})
      for (bool reshard : {true, false})
        for (int grad_accum : {1, 2}) {
          Config config;
          config.model = toy(setup);
          config.stage = stage;
          config.world = 3;
          config.prefetch = prefetch;
          config.reshard = reshard;
          config.grad_accum = grad_accum;
          config.steps = 3;
          check_memory(config);
        }
}

TEST_CASE("memory: fifty steps leave the live bytes where they were (case: memory grows)") {
  for (int stage : {0, 1, 2, 3}) {
    Config config;
    config.stage = stage;
    config.world = 2;
    config.steps = kReduced ? 10 : 50;
    config.prefetch = 2;
    check_memory(config);
  }
}

TEST_CASE("memory: evaluating and reading the parameters gather no more than a step does, and leave nothing") {
  for (int stage : {0, 1, 2, 3})
    for (int prefetch : {0, 2}) {
      Config config;
      config.stage = stage;
      config.world = 3;
      config.prefetch = prefetch;
      std::array<std::string, 3> problems;
      const auto look = [&](Rank& rank) {
        MemoryTracker& memory = rank.context.memory();
        std::string& problem = problems[static_cast<size_t>(rank.comm.rank())];
        const BytesByCategory before = memory.live();
        memory.reset_peak();
        rank.evaluate();
        rank.engine->digest();
        if (memory.live() != before) problem = "live bytes differ after an evaluation";
        if (!at_most(state_bytes(memory.peak()), rank.predict().peak)) problem = "an evaluation held more than a step";
      };
      run(config, look);
      INFO(config.describe());
      for (const std::string& problem : problems) CHECK(problem == "");
    }
}

TEST_CASE("memory: a rank's share shrinks with W as the stages promise") {
  // 1/W of what is sharded: with Adam, stage 3 at W = 4 holds a quarter of stage 0's bytes, but for the pads.
  const auto at_rest = [](int stage, int world) {
    Config config;
    config.stage = stage;
    config.world = world;
    config.steps = 1;
    return run(config).plan.at_rest;
  };
  const StateBytes full = at_rest(0, 4);
  CHECK(full.optimizer == 2 * full.parameter);
  CHECK(full.gradient == full.parameter);
  for (int stage : {1, 2, 3}) {
    const StateBytes share = at_rest(stage, 4);
    CHECK(share.optimizer * 4 == full.optimizer);
    CHECK(share.gradient * (stage >= 2 ? 4 : 1) == full.gradient);
    CHECK(share.parameter * (stage >= 3 ? 4 : 1) == full.parameter);
  }
}

TEST_CASE("memory: checkpointing keeps one input per block instead of its activations") {
  const auto activations = [](bool checkpointing) {
    GptSetup setup = small(true, checkpointing);
    setup.config.n_layer = 8;
    Config config;
    config.model = gpt(setup);
    config.steps = 2;
    return run(config).steps[1].peak[0][static_cast<size_t>(MemoryCategory::activation)];
  };
  // With 8 blocks the one that is being recomputed and eight inputs, instead of eight blocks.
  CHECK(activations(true) * 3 < activations(false));
}

}  // namespace trencadis::test
