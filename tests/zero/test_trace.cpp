// What the trace of a step shows is what the engine promises: a unit's gather is over before its compute begins, a
// reduction begins after the backward that made its gradients, lanes nest, and a prefetch lies under other compute.
#include <algorithm>
#include <map>

#include "training.h"

namespace trencadis::test {

namespace {

using namespace std::chrono_literals;
using Span = Tracer::Span;

constexpr int kUnits = 6;

// The spans of the third step, by rank.
std::vector<std::vector<Span>> trace(int stage, int prefetch, int grad_accum, int delay_us) {
  ToySetup setup;
  setup.units = equal_units(kUnits, 1, 12);
  setup.work = [](int, int, bool) { return 10ms; };
  Config config;
  config.model = toy(setup);
  config.stage = stage;
  config.world = 2;
  config.prefetch = prefetch;
  config.grad_accum = grad_accum;
  config.comm = delayed(delay_us, 1);
  std::vector<std::vector<Span>> by_rank(2);
  on_ranks(2, config.comm, [&](Communicator& comm) {
    Rank rank(config, comm);
    rank.step();
    rank.step();
    rank.context.compute_stream().synchronize();
    rank.context.tracer().start();
    rank.step();
    rank.context.tracer().stop();
    by_rank[static_cast<size_t>(comm.rank())] = rank.context.tracer().take();
  });
  return by_rank;
}

std::vector<Span> named(const std::vector<Span>& spans, const std::string& name) {
  std::vector<Span> found;
  std::copy_if(spans.begin(), spans.end(), std::back_inserter(found), [&](const Span& s) { return s.name == name; });
  std::sort(found.begin(), found.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  return found;
}

std::string unit(int u) { return fmt::format("u{}", u); }

void check_nesting(const std::vector<Span>& spans) {
  std::map<std::string, std::vector<Span>> lanes;
  for (const Span& span : spans) {
    CHECK(span.begin <= span.end);
    lanes[span.lane].push_back(span);
  }
  for (auto& [lane, list] : lanes) {
    std::sort(list.begin(), list.end(),
              [](const Span& a, const Span& b) { return a.begin != b.begin ? a.begin < b.begin : a.end > b.end; });
    std::vector<Span> open;
    for (const Span& span : list) {
      while (!open.empty() && open.back().end <= span.begin) open.pop_back();
      INFO(lane, ": ", span.name);
      if (!open.empty()) CHECK(span.end <= open.back().end);
      open.push_back(span);
    }
  }
}

// Seconds of the gathers of `spans` that lie under forward and backward of units, and seconds in all.
std::pair<double, double> hidden_gathers(const std::vector<Span>& spans) {
  double hidden = 0, all = 0;
  for (const Span& gather : spans) {
    if (!gather.name.starts_with("all_gather ")) continue;
    all += std::chrono::duration<double>(gather.end - gather.begin).count();
    for (const Span& compute : spans) {
      if (!compute.name.ends_with(" forward") && !compute.name.ends_with(" backward")) continue;
      const auto from = std::max(gather.begin, compute.begin), to = std::min(gather.end, compute.end);
      if (from < to) hidden += std::chrono::duration<double>(to - from).count();
    }
  }
  return {hidden, all};
}

}  // namespace

TEST_CASE("trace: every gather and reduction of stage 3 lies where the engine's order of events says") {
  for (const int prefetch : {0, 1, 2})
    for (const int grad_accum : {1, 2})
      for (const std::vector<Span>& spans : trace(3, prefetch, grad_accum, 3000)) {
        CAPTURE(prefetch);
        CAPTURE(grad_accum);
        check_nesting(spans);
        CHECK(named(spans, "gradient norm").size() == 1);
        CHECK(named(spans, "micro-batch 1").size() == 1);
        const auto count = static_cast<size_t>(grad_accum);
        for (int u = 0; u < kUnits; ++u) {
          CAPTURE(u);
          const auto forward = named(spans, unit(u) + " forward"), backward = named(spans, unit(u) + " backward");
          const auto gathers = named(spans, "all_gather parameters of " + unit(u));
          const auto reductions = named(spans, "reduce_scatter gradients of " + unit(u));
          REQUIRE(forward.size() == count);
          REQUIRE(backward.size() == count);
          REQUIRE(reductions.size() == count);
          // Before its forward and again before its backward; the last unit is kept, since its backward follows.
          const size_t each = u == kUnits - 1 ? 1 : 2;
          REQUIRE(gathers.size() == each * count);
          for (size_t a = 0; a < count; ++a) {
            CHECK(gathers[each * a].end <= forward[a].begin);
            if (each == 2) {
              CHECK(gathers[2 * a + 1].begin >= forward[a].end);
              CHECK(gathers[2 * a + 1].end <= backward[a].begin);
            }
            CHECK(reductions[a].begin >= backward[a].end);
          }
          CHECK(named(spans, unit(u) + " optimizer").size() == 1);
          CHECK(named(spans, unit(u) + " optimizer")[0].begin >= reductions.back().end);
        }
      }
}

TEST_CASE("trace: stages 1 and 2 gather after the optimizer, under the rest of the step") {
  for (const int stage : {1, 2})
    for (const std::vector<Span>& spans : trace(stage, 1, 1, 3000)) {
      check_nesting(spans);
      // What the tracer saw of this step: all gathers but the last ones, which end after it was stopped.
      for (int u = 0; u < kUnits; ++u) {
        const auto optimizer = named(spans, unit(u) + " optimizer");
        REQUIRE(optimizer.size() == 1);
        for (const Span& gather : named(spans, "all_gather parameters of " + unit(u)))
          CHECK((gather.begin >= optimizer[0].begin || gather.end <= named(spans, unit(u) + " forward")[0].begin));
      }
    }
}

// What tests/zero/test_overlap.cpp measures from outside, seen in the trace.
TEST_CASE("trace: with delays the overlap of prefetched gathers is seen, and none without prefetch") {
  for (const std::vector<Span>& spans : trace(3, 0, 1, 6000)) CHECK(hidden_gathers(spans).first == 0);
  double best = 0;
  for (int attempt = 0; attempt < 3 && best < 0.6; ++attempt)
    for (const std::vector<Span>& spans : trace(3, 1, 1, 6000)) {
      const auto [hidden, all] = hidden_gathers(spans);
      best = std::max(best, hidden / all);
      // A unit's prefetch lies under the compute of the unit before it.
      const Span gather = named(spans, "all_gather parameters of u2")[0], before = named(spans, "u1 forward")[0];
      CHECK(gather.begin < before.end);
    }
  INFO("share of the gathers' time under compute: ", best);
  CHECK(best >= 0.6);
}

// Timing one run against another would measure the machine's other work, so: what a step records, times what recording
// one thing costs, against what the step takes, all on this machine now.
TEST_CASE("trace: recording a step of a tiny GPT costs under 2 % of it") {
  GptSetup setup;
  setup.config = {.n_layer = 4, .n_head = 4, .n_embd = 128, .block_size = 64, .vocab_size = 256};
  setup.B = kReduced ? 1 : 12;
  setup.T = 64;
  Config config;
  config.model = gpt(setup);
  config.stage = 3;
  on_ranks(1, config.comm, [&](Communicator& comm) {
    Rank rank(config, comm);
    rank.step();
    Tracer& tracer = rank.context.tracer();
    tracer.start();
    rank.context.memory().start_timeline();
    const auto seconds = [](auto&& work) {
      const auto begin = Tracer::Clock::now();
      work();
      return std::chrono::duration<double>(Tracer::Clock::now() - begin).count();
    };
    const double step = seconds([&] { rank.step(); });
    const auto spans = static_cast<double>(tracer.take().size());
    const auto changes = static_cast<double>(rank.context.memory().take_timeline(true).size());
    constexpr int kMany = 20'000;
    const std::string lane = "compute";
    const double of_span = seconds([&] {
      for (int i = 0; i < kMany; ++i)
        const TraceScope scope(tracer, lane, [] { return std::string("all_gather parameters of h.3"); });
    });
    const double of_change = seconds([&] {
      for (int i = 0; i < kMany; ++i)
        rank.context.memory().allocated(MemoryCategory::workspace, i % 2 ? -8 : 8, "gradients of the attention");
    });
    const double cost = (spans * of_span + changes * of_change) / kMany;
    MESSAGE(spans, " spans and ", changes, " changes of memory cost ", 1e6 * cost, " us of ", 1e3 * step, " ms");
    if (!kReduced) CHECK(cost < 0.02 * step);
  });
}

}  // namespace trencadis::test
