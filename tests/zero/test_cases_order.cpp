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
        const Run got = run(config);
        INFO(config.describe(), " dropped ", dropped);
        CHECK(got.first_gradients.at("u1.p0") == std::vector<float>(7, 0.0f));
        CHECK((got.first_gradients.at("u1.p1") == std::vector<float>(3, 0.0f)) == dropped);
        CHECK(all_finite(got.parameters));
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

TEST_CASE("case: ranks start unequal") {
  for (int stage : {0, 1, 2, 3}) {
    Config config;
    config.stage = stage;
    config.world = 3;
    config.adjust = [](int rank, ZeroOptions& options) { options.seed += rank == 1; };
    const auto errors = errors_on_ranks(3, config.comm, [&](Communicator& comm) { Rank rank(config, comm); });
    INFO(config.describe());
    for (const std::string& error : errors) CHECK(error.find("rank 1") != std::string::npos);
  }
}

TEST_CASE("case: ranks start equal to one process, and to the initialisation's closed form") {
  GptSetup setup;
  setup.config = {.n_layer = 2, .n_head = 1, .n_embd = 31, .block_size = 5, .vocab_size = 61};
  Config config;
  config.model = gpt(setup);
  config.steps = 0;
  const Run one = run(config);

  Context context(make_cpu_backend());
  GPT whole(setup.config);  // without any engine
  allocate_parameters(whole, context, 17);
  Values drawn;
  for (Parameter* p : whole.parameters()) drawn[p->name] = p->variable.value().to_vector();
  CHECK(difference(one.start, drawn) == "");

  for (int stage : {0, 1, 2, 3})
    for (int world : {2, 3, 4}) {
      config.stage = stage;
      config.world = world;
      const Run got = run(config);
      INFO(config.describe());
      CHECK(difference(got.start, drawn) == "");
      for (uint32_t digest : got.start_digests) CHECK(digest == one.start_digests[0]);
    }
  for (const auto& [name, values] : drawn) {
    const bool norm = name.find("ln_") != std::string::npos, bias = name.ends_with("bias");
    if (norm || bias) {
      CHECK(values == std::vector<float>(values.size(), bias ? 0.0f : 1.0f));
      continue;
    }
    const auto n = static_cast<double>(values.size());
    double mean = 0, squares = 0;
    for (float v : values) mean += v / n;
    for (float v : values) squares += (v - mean) * (v - mean) / n;
    INFO(name, " mean ", mean, " deviation ", std::sqrt(squares));
    const double stddev = name.find("c_proj") == std::string::npos ? 0.02 : 0.02 / std::sqrt(2.0 * 2.0);
    CHECK(std::abs(mean) < 4.5 * stddev / std::sqrt(n));  // standard error of a mean, and of a deviation
    CHECK(std::abs(std::sqrt(squares) / stddev - 1) < 4.5 / std::sqrt(2 * n));
  }
}

TEST_CASE("case: a rank runs other blocks: an error naming unit and ranks within seconds") {
  ToySetup setup;
  setup.units = equal_units(3, 1, 12);
  // From the second step on, so that prefetching has an order to go by, too.
  setup.order = [](const MicroBatch& batch) {
    return batch.step == 1 && batch.rank == 0 ? std::vector<int>{0, 2} : std::vector<int>{0, 1, 2};
  };
  for (int stage : {0, 1, 2, 3})
    for (int prefetch : {0, 1, 2}) {
      Config config;
      config.model = toy(setup);
      config.stage = stage;
      config.world = 3;
      config.prefetch = prefetch;
      INFO(config.describe());
      const auto start = std::chrono::steady_clock::now();
      const auto errors = errors_on_ranks(3, config.comm, [&](Communicator& comm) {
        Rank rank(config, comm);
        for (int s = 0; s < 3; ++s) rank.step();
      });
      CHECK(std::chrono::steady_clock::now() - start < 10s);
      for (const std::string& error : errors) {
        INFO(error);
        CHECK(error.find("u1") != std::string::npos);
        CHECK(error.find("rank 0") != std::string::npos);
        CHECK(error.find("ranks 1 and 2") != std::string::npos);
      }
    }
}

TEST_CASE("case: a rank runs other blocks, where a prefetch had gathered the one that it skips") {
  // Like a GPT: the backward of unit 0 gathers nothing. Rank 0 has u1 already when it skips it, so that its gathers are
  // those of the others until the last, and nothing but the reductions tells the ranks apart.
  ToySetup setup;
  setup.units = equal_units(4, 1, 12);
  setup.linear = [](int unit) { return unit == 0; };
  setup.order = [](const MicroBatch& batch) {
    return batch.step == 1 && batch.rank == 0 ? std::vector<int>{0, 2, 3} : std::vector<int>{0, 1, 2, 3};
  };
  for (int prefetch : {1, 2, 3})
    for (bool reshard : {true, false}) {
      Config config;
      config.model = toy(setup);
      config.stage = 3;
      config.world = 2;
      config.prefetch = prefetch;
      config.reshard = reshard;
      INFO(config.describe());
      const auto start = std::chrono::steady_clock::now();
      const auto errors = errors_on_ranks(2, config.comm, [&](Communicator& comm) {
        Rank rank(config, comm);
        for (int s = 0; s < 3; ++s) rank.step();
      });
      CHECK(std::chrono::steady_clock::now() - start < 10s);
      for (const std::string& error : errors) {
        INFO(error);
        CHECK(error.find("u1") != std::string::npos);
        CHECK(error.find("rank 0") != std::string::npos);
        CHECK(error.find("rank 1") != std::string::npos);
      }
    }
}

TEST_CASE("case: engine torn down, in the middle of things too") {
  for (int stage : {0, 1, 2, 3})
    for (int until : {0, 1, 2, 3}) {
      Config config;
      config.stage = stage;
      config.world = 2;
      config.grad_accum = 2;
      config.comm = delayed(3000, 1);
      std::array<BytesByCategory, 2> left;
      on_ranks(2, config.comm, [&](Communicator& comm) {
        Rank rank(config, comm);
        if (until >= 1) rank.micro_batch(0);
        if (until >= 2) rank.micro_batch(1);       // reductions may be in flight
        if (until >= 3) rank.engine->step(0.01f);  // and gathers
        rank.model->observe(nullptr);
        rank.engine.reset();
        left[static_cast<size_t>(comm.rank())] = rank.context.memory().live();
      });
      INFO(config.describe(), " torn down after ", until, " calls");
      for (const BytesByCategory& bytes : left) CHECK(bytes == BytesByCategory{});
    }
}

TEST_CASE("case: step result not visible: all ranks hold one process's parameters after every step") {
  for (uint64_t seed : delay_seeds())
    for (int stage : {0, 1, 2, 3}) {
      Config config;
      config.stage = stage;
      config.world = 3;
      config.comm = delayed(500, seed);
      const Run got = run(config), expected = one_process(config);
      INFO(config.describe());
      for (size_t s = 0; s < got.steps.size(); ++s) {
        if (s > 0) CHECK(expected.steps[s].digests[0] != expected.steps[s - 1].digests[0]);
        for (uint32_t digest : got.steps[s].digests) CHECK(digest == expected.steps[s].digests[0]);
      }
    }
}

}  // namespace trencadis::test
