// Promise 1: which stage, how many ranks, how far prefetched, recomputed or not, on how many threads: the same bits.
//
// One process that takes the same micro-batches one after another is the truth. Stages 2 and 3 add in its order
// whatever W is; stages 0 and 1 add a rank's own micro-batches first, which is its order only when ga = 1 or W = 1.
#include "training.h"

namespace trencadis::test {

namespace {

// Two models, both with prime C and V: tied without dropout, and untied with. In the untied one the final norm and the
// head are a unit of their own.
MakeModel model(bool tied, bool checkpointing) {
  GptSetup setup;
  if (!tied) setup.config = {.n_layer = 2, .n_head = 1, .n_embd = 11, .block_size = 5, .vocab_size = 17};
  setup.config.tied = tied;
  setup.config.dropout = tied ? 0.0f : 0.1f;
  setup.config.activation_checkpointing = checkpointing;
  return gpt(setup);
}

// The norm of these models' first gradients is above it, so every early step is clipped.
constexpr float kClip = 0.2f;

Run truth(bool tied, int micro_batches) {
  Config config;
  config.model = model(tied, false);
  config.grad_accum = micro_batches;
  config.clip = kClip;
  config.steps = kReduced ? 3 : 5;
  return run(config);
}

// All of checkpointing, prefetch and (where it means something) resharding, for one stage, W and ga.
void run_all(int stage, int world, int grad_accum, bool tied,
             const std::function<void(const Config&, const Run&)>& check) {
  for (bool checkpointing : {false, true})
    for (int prefetch : {0, 1, 2})
      for (bool reshard : {true, false}) {
        if (!reshard && stage != 3) continue;  // only stage 3 has anything to keep
        if (kReduced && (prefetch + checkpointing) % 2 == 0) continue;
        Config config;
        config.model = model(tied, checkpointing);
        config.stage = stage;
        config.world = world;
        config.grad_accum = grad_accum;
        config.prefetch = prefetch;
        config.reshard = reshard;
        config.clip = kClip;
        config.steps = kReduced ? 3 : 5;
        INFO(config.describe(), " tied ", tied, " checkpointing ", checkpointing);
        check(config, run(config));
      }
}

}  // namespace

TEST_CASE("matrix: stages 2 and 3, and one process, have the same bits for equal W * ga") {
  for (bool tied : {true, false})
    for (int world : {1, 2, 3, 4})
      for (int grad_accum : {1, 3}) {
        const Run expected = truth(tied, world * grad_accum);
        REQUIRE(all_finite(expected.parameters));
        REQUIRE(expected.steps[0].result.grad_norm > kClip);
        for (int stage : {2, 3})
          run_all(stage, world, grad_accum, tied,
                  [&](const Config&, const Run& got) { CHECK(difference(got, expected) == ""); });
      }
}

TEST_CASE("matrix: stages 0 and 1 have the same bits always, and those of one process when ga = 1 or W = 1") {
  for (bool tied : {true, false})
    for (int world : {1, 2, 3, 4})
      for (int grad_accum : {1, 3}) {
        const Run one_process = truth(tied, world * grad_accum);
        const bool same_order = world == 1 || grad_accum == 1;
        Run first_of_all;
        for (int stage : {0, 1})
          run_all(stage, world, grad_accum, tied, [&](const Config&, const Run& got) {
            if (same_order) CHECK(difference(got, one_process) == "");
            if (first_of_all.steps.empty()) first_of_all = got;
            CHECK(difference(got, first_of_all) == "");
            // Another order is another rounding. Adam turns that into steps, so what is compared is the raw gradient.
            CHECK(relative_error(got.first_gradients, one_process.first_gradients) < 1e-5);
          });
      }
}

TEST_CASE("matrix: threads and alignment change no bit") {
  for (bool tied : {true, false}) {
    const Run expected = truth(tied, 2);
    for (int stage : {0, 1, 2, 3})
      for (int threads : {1, 2, 3})
        for (int misalign : {0, 8, 40}) {  // the control words are 64 bits
          if (kReduced && (stage + threads) % 2 == 0) continue;
          Config config;
          config.model = model(tied, threads == 2);
          config.stage = stage;
          config.world = 2;
          config.threads = threads;
          config.misalign = misalign;
          config.clip = kClip;
          config.steps = kReduced ? 3 : 5;
          INFO(config.describe(), " tied ", tied);
          CHECK(difference(run(config), expected) == "");
        }
  }
}

TEST_CASE("matrix: a unit with fewer elements than ranks, beside larger ones") {
  ToySetup setup;
  setup.units = {{{3}}, {{5}, {7}}, {{2, 3}, {1}}};
  for (int grad_accum : {1, 3})
    for (int world : {2, 4, 8}) {
      Config config;
      config.model = toy(setup);
      config.clip = 0.1f;
      config.grad_accum = world * grad_accum;
      const Run expected = run(config);
      config.world = world;
      config.grad_accum = grad_accum;
      for (int stage : {0, 1, 2, 3})
        for (int prefetch : {0, 2}) {
          if (stage < 2 && grad_accum > 1) continue;  // another order: the first two cases are about that
          config.stage = stage;
          config.prefetch = prefetch;
          INFO(config.describe());
          CHECK(difference(run(config), expected) == "");
        }
    }
}

}  // namespace trencadis::test
