// Cases from the field, second part: order, overlap, lifetime. Each test names its case.
//
// Delays are drawn per rank and collective from a seed, so that ranks arrive in ever other orders; TRENCADIS_DELAY_SEED
// picks one. Memory is poisoned when freed: what is used too late or too early shows as other bits.
#include <cmath>

#include "training.h"

namespace trencadis::test {

namespace {

using namespace std::chrono_literals;

// Every stage with each delay seed at several prefetches: what one process computes.
void check_under_delays(const MakeModel& model, int world, int microseconds, int steps = 5) {
  Config config;
  config.model = model;
  config.clip = 0.1f;
  config.steps = steps;
  config.grad_accum = world;
  const Run expected = run(config);
  REQUIRE(all_finite(expected.parameters));
  config.grad_accum = 1;
  config.world = world;
  config.look_between_steps = false;
  for (uint64_t seed : delay_seeds())
    for (int stage : {0, 1, 2, 3})
      for (int prefetch : {1, 2}) {
        if (prefetch == 2 && stage != 3) continue;  // others only tell 0 from the rest
        config.comm = delayed(microseconds, seed);
        config.stage = stage;
        config.prefetch = prefetch;
        INFO(config.describe());
        CHECK(difference(run(config), expected) == "");
      }
}

// One process with the same micro-batches as `config`.
Run one_process(Config config) {
  config.grad_accum *= config.world;
  config.world = 1;
  config.stage = 0;
  config.comm = {};
  return run(config);
}

}  // namespace

TEST_CASE("case: ranks finish gradients in different orders") {
  ToySetup setup;
  setup.units = {{{5}}, {{7}}};
  setup.work = [](int rank, int unit, bool backward) { return backward && rank == unit ? 4ms : 0ms; };
  check_under_delays(toy(setup), 2, 300);
}

TEST_CASE("case: buffer reused in flight") {
  // The delay is long beside the compute: every transfer is still under way when the next unit is done.
  ToySetup setup;
  setup.units = equal_units(4, 2, 9);
  check_under_delays(toy(setup), 2, 2500);
}

TEST_CASE("case: freed while in flight; reused gather buffer, units of unequal sizes") {
  ToySetup setup;
  setup.units = {{{900}}, {{5}}, {{300}, {7}}, {{11}}};
  check_under_delays(toy(setup), 2, 1000);
  check_under_delays(toy(setup), 3, 1000);
  check_under_delays(gpt(), 2, 1000);
}

TEST_CASE("case: execution order differs from registration") {
  ToySetup setup;
  setup.units = {{{5}}, {{900}}, {{7}, {3}}};
  setup.order = [](const MicroBatch&) { return std::vector<int>{0, 2, 1}; };
  check_under_delays(toy(setup), 2, 300);
  check_under_delays(toy(setup), 3, 0);
}

TEST_CASE("case: execution order changes from step to step") {
  ToySetup setup;
  setup.units = equal_units(4, 1, 13);
  setup.order = [](const MicroBatch& batch) {
    switch (batch.step % 3) {
      case 0:
        return std::vector<int>{0, 1, 2, 3};
      case 1:
        return std::vector<int>{3, 1, 0, 2};
      default:
        return std::vector<int>{2, 0, 3};
    }
  };
  check_under_delays(toy(setup), 2, 300, 7);
}

TEST_CASE("case: a block used twice in one step, then skipped") {
  for (bool checkpointing : {false, true}) {
    ToySetup setup;
    setup.units = {{{5}}, {{11}, {3}}, {{7}}};
    setup.checkpointing = checkpointing;
    setup.order = [](const MicroBatch& batch) {
      switch (batch.step % 3) {
        case 0:
          return std::vector<int>{0, 1, 1, 2};
        case 1:
          return std::vector<int>{0, 2};
        default:
          return std::vector<int>{0, 1, 2, 1};
      }
    };
    check_under_delays(toy(setup), 2, 300, 7);

    // A skipped block's gradient is 0 in every stage: Adam goes on with its moments, decay goes on.
    for (int stage : {0, 1, 2, 3}) {
      Config config;
      config.model = toy(setup);
      config.stage = stage;
      config.world = 2;
      Values skipped;
      on_ranks(2, config.comm, [&](Communicator& comm) {
        Rank rank(config, comm);
        rank.step();
        rank.step();
        collect_shards(*rank.engine, What::gradient, skipped);
      });
      INFO(config.describe());
      CHECK(skipped.at("u1.p0") == std::vector<float>(11, 0.0f));
      CHECK(skipped.at("u1.p1") == std::vector<float>(3, 0.0f));
      CHECK(skipped.at("u0.p0") != std::vector<float>(5, 0.0f));
    }
  }
}

TEST_CASE("case: a block skipped in some micro-batches of a step") {
  for (int when : {0, 1, 2}) {
    ToySetup setup;
    setup.units = {{{5}}, {{11}, {3}}, {{7}}};
    setup.order = [=](const MicroBatch& batch) {
      const int64_t a = batch.number / 2 % 3;  // W = 2, ga = 3
      return a == when ? std::vector<int>{0, 2} : std::vector<int>{0, 1, 2};
    };
    for (int stage : {0, 1, 2, 3}) {
      Config config;
      config.model = toy(setup);
      config.stage = stage;
      config.world = 2;
      config.grad_accum = 3;
      const Run got = run(config), expected = one_process(config);
      INFO(config.describe(), " skipped in micro-batch ", when);
      if (stage >= 2)
        CHECK(difference(got, expected) == "");
      else
        CHECK(relative_error(got.first_gradients, expected.first_gradients) < 1e-5);
      CHECK(all_finite(got.parameters));
    }
  }
}

TEST_CASE(
    "case: a parameter that a step does not use, and a use whose result does not reach the loss, have gradient 0") {
  for (bool dropped : {false, true}) {
    ToySetup setup;
    setup.units = {{{5}}, {{7}, {3}}, {{3}}};
    if (dropped)
      setup.dropped = [](int unit) { return unit == 1; };  // forward alone: no backward of it comes
    else
      setup.used = [](const MicroBatch& batch, const std::string& name) { return name != "u1.p0" || batch.step > 0; };
    for (int stage : {0, 1, 2, 3})
      for (bool reshard : {true, false}) {
        Config config;
        config.model = toy(setup);
        config.stage = stage;
        config.world = 2;
        config.grad_accum = 2;
        config.prefetch = 2;
        config.reshard = reshard;
        config.look_between_steps = false;  // that would free what a step has left
        const Run got = run(config);
        INFO(config.describe(), " dropped ", dropped);
        CHECK(got.first_gradients.at("u1.p0") == std::vector<float>(7, 0.0f));
        CHECK((got.first_gradients.at("u1.p1") == std::vector<float>(3, 0.0f)) == dropped);
        CHECK(all_finite(got.parameters));
        for (const StepLog& step : got.steps)
          CHECK(step.before == got.steps[0].before);  // bytes: nothing stays gathered
        if (stage >= 2) CHECK(difference(got, one_process(config)) == "");
      }
  }
}

TEST_CASE("case: recompute looks like forward: two gathers per unit, no more, the same bits") {
  for (int world : {2, 3})
    for (int prefetch : {0, 1, 2}) {
      Config config;
      config.stage = 3;
      config.world = world;
      config.prefetch = prefetch;
      GptSetup setup;
      config.model = gpt(setup);
      const Run without = run(config);
      setup.config.activation_checkpointing = true;
      config.model = gpt(setup);
      const Run with = run(config);
      INFO(config.describe());
      CHECK(difference(with, without) == "");
      for (const Run* r : {&with, &without})
        for (const StepLog& step : r->steps)
          for (const CommCounters& counters : step.traffic)
            CHECK(counters.at(Traffic::training, CollectiveKind::all_gather).calls == 2 * 4);  // of 4 units
    }
}

TEST_CASE("case: evaluation between training steps") {
  for (int stage : {0, 1, 2, 3})
    for (uint64_t seed : delay_seeds()) {
      Config config;
      config.stage = stage;
      config.world = 2;
      config.comm = delayed(200, seed);
      std::array<std::vector<float>, 2> outputs;
      const Run without = run(config);
      const Run with = run(config, [&](Rank& rank) {
        const BytesByCategory before = rank.context.memory().live();
        rank.evaluate();
        outputs[static_cast<size_t>(rank.comm.rank())] = rank.evaluate();
        if (rank.context.memory().live() != before) throw Error("an evaluation left something gathered");
      });
      INFO(config.describe());
      CHECK(difference(with, without) == "");
      CHECK(!outputs[0].empty());
      CHECK(outputs[0] == outputs[1]);
      for (float x : outputs[0]) CHECK(std::isfinite(x));
    }
}

}  // namespace trencadis::test
