// Prefetching hides the gathers of stage 3 under the compute of the units before.
//
// Both compute and network are sleeps here, so a busy machine disturbs little, and what is measured is the program's
// order alone. Each time is taken as the best of up to three tries.
#include <algorithm>

#include "training.h"

namespace trencadis::test {

namespace {

using namespace std::chrono_literals;

constexpr int kUnits = 8;
constexpr auto kCompute = 25ms;  // of a unit, forward and backward each

// Seconds of one step (training) or of one forward pass (evaluation), the second of its kind: the order is known then.
struct Times {
  double step = 0, evaluation = 0;
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
  config.comm = delayed(10000, 1);
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
    rank.micro_batch(0);
    rank.engine->step(0.01f);
    ++rank.next_step;
    const double step = seconds([&] { rank.micro_batch(0); });
    rank.engine->step(0.01f);
    rank.evaluate();
    const double evaluation = seconds([&] { rank.evaluate(); });
    if (comm.rank() == 0) times = {step, evaluation};
  });
  return times;
}

}  // namespace

TEST_CASE("overlap: prefetch hides at least 70 % of the collectives' delay") {
  const double compute = std::chrono::duration<double>(kCompute).count();
  Times waiting, prefetching;
  const auto hidden = [&](double Times::*what, int passes) {
    // What is left of the time without the compute is delay that nothing hid.
    const double total = waiting.*what - passes * kUnits * compute;
    const double exposed = prefetching.*what - passes * kUnits * compute;
    return 1 - exposed / total;
  };
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Times a = measure(0), b = measure(1);
    const auto better = [&](double x, double y) { return attempt == 0 ? y : std::min(x, y); };
    waiting = {better(waiting.step, a.step), better(waiting.evaluation, a.evaluation)};
    prefetching = {better(prefetching.step, b.step), better(prefetching.evaluation, b.evaluation)};
    if (hidden(&Times::step, 2) >= 0.7 && hidden(&Times::evaluation, 1) >= 0.7) break;
  }
  // Nothing is hidden at prefetch 0: every collective, 10 ms on average, is waited for. 8 gathers in a forward pass; in
  // a step 15 (the last unit's serves both) and 8 reductions.
  CHECK(waiting.evaluation > kUnits * (compute + 0.007));
  CHECK(waiting.step > 2 * kUnits * compute + 23 * 0.007);
  INFO("step ", waiting.step, " s without and ", prefetching.step, " s with prefetch; evaluation ", waiting.evaluation,
       " and ", prefetching.evaluation);
  // All delay there is in a forward pass is that of gathers.
  CHECK(hidden(&Times::evaluation, 1) >= 0.7);
  CHECK(hidden(&Times::step, 2) >= 0.7);
}

}  // namespace trencadis::test
