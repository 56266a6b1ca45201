// Promise 3: what a rank sends in a step, counted where it is sent, in elements; formulas of the design, times (W-1)/W.
#include "dist/collective.h"
#include "training.h"

namespace trencadis::test {

namespace {

constexpr CollectiveKind kAllReduce = CollectiveKind::all_reduce, kReduceScatter = CollectiveKind::reduce_scatter,
                         kAllGather = CollectiveKind::all_gather;

int64_t sent(const CommCounters& counters, Traffic traffic, CollectiveKind kind) {
  return counters.at(traffic, kind).elements_sent;
}
int64_t calls(const CommCounters& counters, Traffic traffic) {
  int64_t sum = 0;
  for (int k = 0; k < kCollectiveKinds; ++k) sum += counters.count[static_cast<int>(traffic)][k].calls;
  return sum;
}
int64_t training_elements(const CommCounters& counters) {
  int64_t sum = 0;
  for (int k = 0; k < kCollectiveKinds; ++k)
    sum += counters.count[static_cast<int>(Traffic::training)][k].elements_sent;
  return sum;
}

// A GPT of three units, some of them below what an all_reduce that is no training sends in one go.
GptSetup three_units(bool checkpointing = false) {
  GptSetup setup;
  setup.config = {.n_layer = 2, .n_head = 1, .n_embd = 12, .block_size = 6, .vocab_size = 211};
  setup.config.activation_checkpointing = checkpointing;
  return setup;
}

std::vector<FlatUnit> layouts(const Config& config) {
  const auto model = config.model();
  return flatten(model->units(), config.world);
}

}  // namespace

TEST_CASE("traffic: every stage sends what its table says, call by call") {
  for (int stage : {0, 1, 2, 3})
    for (int world : {2, 3, 4})
      for (int grad_accum : {1, 3})
        for (int prefetch : {0, 1, 2})
          for (bool reshard : {true, false}) {
            if (!reshard && stage != 3) continue;
            if (kReduced && (world + prefetch) % 2 != 0) continue;
            Config config;
            const bool checkpointing = prefetch == 2;  // must not cost a gather
            config.model = gpt(three_units(checkpointing));
            config.stage = stage;
            config.world = world;
            config.grad_accum = grad_accum;
            config.prefetch = prefetch;
            config.reshard = reshard;
            config.steps = 3;
            const Run got = run(config);
            INFO(config.describe());

            int64_t psi = 0;  // padded elements of the model
            const auto model = config.model();
            const auto units = flatten(model->units(), world);
            for (const FlatUnit& unit : units) psi += unit.padded();
            // A micro-batch of stage 3: with resharding every block is gathered for its forward and for its backward;
            // the root for the embedding and for the head, whose backward follows at once. Without, everything once.
            const int64_t gathers = reshard ? 2 : 1;
            int64_t reduced = 0, gathered = 0, all_reduced = 0;
            switch (stage) {
              case 0:
                all_reduced = 2 * psi;
                break;
              case 1:
                reduced = psi, gathered = psi;
                break;
              case 2:
                reduced = grad_accum * psi, gathered = psi;
                break;
              case 3:
                reduced = grad_accum * psi, gathered = gathers * grad_accum * psi;
                break;
            }
            for (const StepLog& step : got.steps)
              for (const CommCounters& counters : step.traffic) {
                CHECK(sent(counters, Traffic::training, kAllReduce) * world == all_reduced * (world - 1));
                CHECK(sent(counters, Traffic::training, kReduceScatter) * world == reduced * (world - 1));
                CHECK(sent(counters, Traffic::training, kAllGather) * world == gathered * (world - 1));
                CHECK(training_elements(counters) * world == (all_reduced + reduced + gathered) * (world - 1));
                const auto units_count = static_cast<int64_t>(units.size());
                const int64_t reductions = stage < 2 ? units_count : grad_accum * units_count;
                CHECK(counters.at(Traffic::training, stage == 0 ? kAllReduce : kReduceScatter).calls == reductions);
                const int64_t all_gathers = stage == 0  ? 0
                                            : stage < 3 ? units_count
                                                        : gathers * grad_accum * units_count;
                CHECK(counters.at(Traffic::training, kAllGather).calls == all_gathers);
              }
            // A step reports the same itself: it has the gathers after the step before in place of those after it.
            for (size_t s = 1; s < got.steps.size(); ++s)
              for (CollectiveKind kind : {kAllReduce, kReduceScatter, kAllGather})
                CHECK(sent(got.steps[s].result.traffic, Traffic::training, kind) ==
                      sent(got.steps[s].traffic[0], Traffic::training, kind));
            // What was predicted is the same.
            CHECK(got.plan.all_reduce == all_reduced);
            CHECK(got.plan.reduce_scatter == reduced);
            CHECK(got.plan.all_gather == gathered);
          }
}

TEST_CASE("traffic: stage 3 with two units more, embedding and head untied") {
  for (bool reshard : {true, false}) {
    Config config;
    GptSetup setup = three_units();
    setup.config.tied = false;
    config.model = gpt(setup);
    config.stage = 3;
    config.world = 3;
    config.reshard = reshard;
    config.steps = 2;
    const Run got = run(config);
    // The embedding's backward reads no weights, and the head's comes right after its forward: one gather for each. Two
    // for every block, or one when it is kept.
    int64_t gathered = 0, psi = 0;
    const auto model = config.model();
    for (const FlatUnit& unit : flatten(model->units(), 3)) {
      gathered += (unit.name.starts_with("h.") && reshard ? 2 : 1) * unit.padded();
      psi += unit.padded();
    }
    for (const CommCounters& counters : got.steps[1].traffic) {
      CHECK(sent(counters, Traffic::training, kAllGather) * 3 == gathered * 2);
      CHECK(training_elements(counters) * 3 == (gathered + psi) * 2);
    }
    CHECK(got.plan.all_gather == gathered);
  }
}

TEST_CASE("traffic: control is at most three small calls a step, everything else is counted apart") {
  for (int stage : {0, 1, 2, 3})
    for (int grad_accum : {1, 3}) {
      Config config;
      config.stage = stage;
      config.world = 3;
      config.grad_accum = grad_accum;
      config.clip = 1;
      const auto disturb = [](Rank& rank) {
        rank.evaluate();
        rank.engine->digest();
      };
      const Run alone = run(config), disturbed = run(config, disturb);
      INFO(config.describe());
      for (size_t s = 0; s < alone.steps.size(); ++s)
        for (size_t r = 0; r < 3; ++r) {
          const CommCounters& counters = alone.steps[s].traffic[r];
          CHECK(calls(counters, Traffic::control) >= 1);
          CHECK(calls(counters, Traffic::control) <= 3);
          for (int k = 0; k < kCollectiveKinds; ++k) {
            const CommCounters::Count& count = counters.count[static_cast<int>(Traffic::control)][k];
            // bytes_sent is the sum over two peers.
            CHECK(count.bytes_sent < 256 * 2 * std::max<int64_t>(1, count.calls));
          }
          CHECK(training_elements(counters) == training_elements(disturbed.steps[s].traffic[r]));
          CHECK(calls(counters, Traffic::control) == calls(disturbed.steps[s].traffic[r], Traffic::control));
        }
    }
}

TEST_CASE("traffic: an evaluation between micro-batches, or before the step, changes no class") {
  Config config;
  config.stage = 1;
  config.world = 2;
  config.grad_accum = 2;
  std::array<CommCounters, 2> counters;
  on_ranks(2, config.comm, [&](Communicator& comm) {
    Rank rank(config, comm);
    rank.micro_batch(0);
    rank.evaluate();
    rank.micro_batch(1);
    rank.evaluate();
    rank.engine->step(0.01f);
    rank.engine->digest();
    counters[static_cast<size_t>(comm.rank())] = rank.engine->counters();
  });
  int64_t psi = 0;
  for (const FlatUnit& unit : layouts(config)) psi += unit.padded();
  for (const CommCounters& c : counters) CHECK(training_elements(c) * 2 == 2 * psi);
}

TEST_CASE("traffic: frozen units are gathered, but never reduced") {
  GptSetup setup = three_units();
  setup.frozen = [](const std::string& name) { return name.starts_with("h."); };
  for (int stage : {0, 1, 2, 3}) {
    Config config;
    config.model = gpt(setup);
    config.stage = stage;
    config.world = 2;
    config.steps = 2;
    const Run got = run(config);
    INFO(config.describe());
    int64_t trained = 0, all = 0;
    const auto model = config.model();
    for (const FlatUnit& unit : flatten(model->units(), 2)) {
      trained += unit.trainable_padded();
      all += unit.padded();
    }
    REQUIRE(trained < all);
    for (const CommCounters& counters : got.steps[1].traffic) {
      CHECK(sent(counters, Traffic::training, stage == 0 ? kAllReduce : kReduceScatter) * 2 ==
            (stage == 0 ? 2 : 1) * trained);
      CHECK(sent(counters, Traffic::training, kAllGather) * 2 == (stage == 0 ? 0 : stage < 3 ? trained : 2 * all));
    }
    CHECK(got.plan.all_reduce + got.plan.reduce_scatter == (stage == 0 ? 2 : 1) * trained);
  }
}

TEST_CASE("traffic: one process makes no call") {
  for (int stage : {0, 1, 2, 3}) {
    Config config;
    config.stage = stage;
    config.grad_accum = 3;
    config.clip = 1;
    const Run got = run(config, [](Rank& rank) { rank.evaluate(); });
    for (const StepLog& step : got.steps)
      for (int t = 0; t < kTrafficClasses; ++t)
        for (int k = 0; k < kCollectiveKinds; ++k) {
          CHECK(step.traffic[0].count[t][k].calls == 0);
          CHECK(step.traffic[0].count[t][k].bytes_sent == 0);
        }
    CHECK(got.plan.all_reduce + got.plan.reduce_scatter + got.plan.all_gather == 0);
  }
}

}  // namespace trencadis::test
