// Cases from the field, second part continued: ranks that should be equal, are not, or end. Each test names its case.
#include <cmath>

#include "training.h"

namespace trencadis::test {

using namespace std::chrono_literals;

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
  // Skipping the first unit is the hard case: its gradients are complete last, so that no later reduction of rank 0 meets
  // the one that the others have more.
  for (int skipped : {1, 0}) {
    ToySetup setup;
    setup.units = equal_units(3, 1, 12);
    // From the second step on, so that prefetching has an order to go by, too.
    setup.order = [=](const MicroBatch& batch) {
      std::vector<int> order = {0, 1, 2};
      if (batch.step == 1 && batch.rank == 0) order.erase(order.begin() + skipped);
      return order;
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
          CHECK(error.find(fmt::format("u{}", skipped)) != std::string::npos);
          CHECK(error.find("rank 0") != std::string::npos);
          CHECK(error.find("ranks 1 and 2") != std::string::npos);
        }
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
      config.comm.timeout_seconds = 12;
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
      Config one_process = config;
      one_process.world = 1;
      one_process.grad_accum = 3;
      one_process.comm = {};
      const Run got = run(config), expected = run(one_process);
      INFO(config.describe());
      for (size_t s = 0; s < got.steps.size(); ++s) {
        if (s > 0) CHECK(expected.steps[s].digests[0] != expected.steps[s - 1].digests[0]);
        for (uint32_t digest : got.steps[s].digests) CHECK(digest == expected.steps[s].digests[0]);
      }
    }
}

}  // namespace trencadis::test
