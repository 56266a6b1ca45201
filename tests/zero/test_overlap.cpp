// Prefetching hides the gathers of stage 3 under the compute of the units before.
//
// Both compute and network are sleeps here, so a busy machine disturbs little, and what is measured is the program's
// order alone. Each time is the shortest of several.
#include <algorithm>

#include "training.h"

namespace trencadis::test {

namespace {

using namespace std::chrono_literals;

constexpr int kUnits = 8;
constexpr auto kCompute = 25ms;   // of a unit, forward and backward each
constexpr auto kDelay = 10ms;     // of a collective, on average
constexpr int kGathers = kUnits;  // of a forward pass
// Of a step: gathers for forward and backward, of which the last unit needs one for both, and reductions.
constexpr int kCollectives = 2 * kUnits - 1 + kUnits;

// Seconds of a step (training) and of a forward pass (evaluation), once the order is known; the best of a few.
struct Times {
  double step = 1e9, evaluation = 1e9;
  void improve(const Times& other) {
    step = std::min(step, other.step);
    evaluation = std::min(evaluation, other.evaluation);
  }
};

Times measure(int prefetch) {
  ToySetup setup;
  setup.units = equal_units(kUnits, 1, 12);
  setup.work = [](int, int, bool) { return kCompute; };
  Config config;
  config.model = toy(setup);
  config.stage = 3;
  config.world = 2;
  config.prefetch = prefetch;
  config.comm = delayed(std::chrono::microseconds(kDelay).count(), 1);
  Times times;
  on_ranks(2, config.comm, [&](Communicator& comm) {
    Rank rank(config, comm);
    const auto seconds = [&](auto&& work) {
      comm.barrier({"start of a measurement"});
      const auto start = std::chrono::steady_clock::now();
      work();
      comm.barrier({"end of a measurement"});
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    rank.step();
    rank.evaluate();
    for (int repeat = 0; repeat < 2; ++repeat) {
      const double step = seconds([&] { rank.micro_batch(0); });
      rank.engine->step(0.01f);
      const double evaluation = seconds([&] { rank.evaluate(); });
      if (comm.rank() == 0) times.improve({step, evaluation});
    }
  });
  return times;
}

}  // namespace

TEST_CASE("overlap: prefetch hides at least 70 % of the collectives' delay") {
  const double delay = std::chrono::duration<double>(kDelay).count();
  Times waiting, prefetching;
  const auto hidden_in_step = [&] { return (waiting.step - prefetching.step) / (kCollectives * delay); };
  const auto hidden_in_pass = [&] { return (waiting.evaluation - prefetching.evaluation) / (kGathers * delay); };
  for (int attempt = 0; attempt < 3; ++attempt) {
    waiting.improve(measure(0));
    prefetching.improve(measure(1));
    if (hidden_in_step() >= 0.7 && hidden_in_pass() >= 0.7) break;
  }
  INFO("step ", waiting.step, " s without and ", prefetching.step, " s with prefetch; forward pass ",
       waiting.evaluation, " and ", prefetching.evaluation);
  // All delay there is in a forward pass is that of gathers; a step has the reductions besides.
  CHECK(hidden_in_pass() >= 0.7);
  CHECK(hidden_in_step() >= 0.7);
}

}  // namespace trencadis::test
