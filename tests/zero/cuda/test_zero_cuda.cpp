// ZeRO on GPUs, which are simulated: the stages whose files tests/zero proves on CPUs, now on CUDA streams, NCCL and
// memory that is handed on in stream order.
//
// Each run is made under a schedule of the streams (runtime/cudasim/executor.h), and a missing event wait gives other
// numbers under some of them. So equal bits under all schedules say that the waits are there. NCCL forms the sum over
// the ranks before it is added to the shard: with several micro-batches a step, stages 2 and 3 equal each other at
// equal W, and no longer one process. The simulator's NCCL sums in rank order, so with one micro-batch all are equal.
#include "sim_gpus.h"

namespace trencadis::test {

namespace {

MakeModel model(bool checkpointing) {
  GptSetup setup;
  setup.config = {.n_layer = kReduced ? 1 : 2, .n_head = 1, .n_embd = 9, .block_size = 5, .vocab_size = 13};
  setup.config.activation_checkpointing = checkpointing;
  setup.B = 1;
  setup.T = 4;
  return gpt(setup);
}

Config config_of(int stage, int world, int grad_accum) {
  Config config;
  config.model = model(false);
  config.stage = stage;
  config.world = world;
  config.grad_accum = grad_accum;
  config.clip = 0.2f;
  config.steps = kReduced ? 2 : 3;
  config.comm.timeout_seconds = 60;
  return config;
}

// What must hold whatever the configuration: the numbers of one process on the CPU, but for rounding.
void check_against_cpu(const Run& got, const Run& cpu) {
  CHECK(difference(got.start, cpu.start) == "");
  CHECK(all_finite(got.parameters));
  CHECK(relative_error(got.first_gradients, cpu.first_gradients) < 1e-5);
  for (size_t s = 0; s < got.steps.size(); ++s) {
    CHECK(std::abs(got.steps[s].result.loss - cpu.steps[s].result.loss) < 1e-4);
    CHECK(got.steps[s].result.tokens == cpu.steps[s].result.tokens);
    CHECK_FALSE(got.steps[s].result.skipped);
  }
}

std::string state_bytes(const BytesByCategory& bytes) {
  const auto of = [&](MemoryCategory category) { return bytes[static_cast<size_t>(category)]; };
  return fmt::format("P {} G {} O {}", of(MemoryCategory::parameter), of(MemoryCategory::gradient),
                     of(MemoryCategory::optimizer));
}
std::string state_bytes(const StateBytes& b) {
  return fmt::format("P {} G {} O {}", b.parameter, b.gradient, b.optimizer);
}

// Promise 2, to the byte; the first micro-batch of all does not know yet what to gather ahead.
void check_memory(const Run& got) {
  for (size_t r = 0; r < got.after_end.size(); ++r) {
    CHECK(state_bytes(got.peak_of_start[r]) == state_bytes(got.plan.at_rest));
    for (size_t s = 0; s < got.steps.size(); ++s) {
      CHECK(state_bytes(got.steps[s].before[r]) == state_bytes(got.plan.at_rest));
      CHECK(got.steps[s].before[r][static_cast<size_t>(MemoryCategory::activation)] == 0);
      if (s > 0) CHECK(state_bytes(got.steps[s].peak[r]) == state_bytes(got.plan.peak));
    }
    CHECK(got.after_end[r] == BytesByCategory{});
  }
}

// The host waits for the device once a step: for the token count, the loss and the norm. In the first step NCCL's
// scratch memory grows with the units that come, and waits for its last use.
void check_host_waits(const Run& got) {
  for (size_t s = 1; s < got.steps.size(); ++s)
    for (const int64_t waits : got.steps[s].host_waits) CHECK(waits == 1);
}

// The runs of one W and ga under a schedule: prefetching, checkpointing and resharding take turns, for no bit depends
// on them. `families` says which stages share their bits: first_of[families[stage]] is set by the first.
struct Matrix {
  int world, grad_accum;
  Run cpu;
  std::array<int, kStages> families;
  std::array<Run, 2> first_of = {};
  int turn = 0;

  Matrix(int world_, int grad_accum_) : world(world_), grad_accum(grad_accum_) {
    cpu = run(config_of(0, 1, world * grad_accum));
    families = grad_accum == 1 ? std::array{0, 0, 0, 0} : std::array{0, 0, 1, 1};
  }

  void run_stage(int stage, const std::string& schedule) {
    Config config = config_of(stage, world, grad_accum);
    config.devices = sim_gpus();
    config.prefetch = turn % 3 == 2 ? 0 : 1;
    config.model = model(turn % 2 == 1);
    config.reshard = turn % 5 != 4;
    config.look_between_steps = turn % 2 == 0;
    ++turn;
    INFO(config.describe(), " under ", schedule, ", turn ", turn);
    const WithSchedule scope(schedule);
    const Run got = test::run(config);
    check_against_cpu(got, cpu);
    check_memory(got);
    check_host_waits(got);
    Run& first = first_of[static_cast<size_t>(families[static_cast<size_t>(stage)])];
    if (first.steps.empty()) first = got;
    CHECK(difference(got, first) == "");
  }
};

}  // namespace

TEST_CASE("cuda: equal bits in every stage and under every schedule") {
  for (int world : {2, 3})
    for (int grad_accum : {1, 2}) {
      if (kReduced && world + grad_accum != 4) continue;
      Matrix matrix(world, grad_accum);
      for (const std::string& schedule : schedules())
        for (int stage = 0; stage < kStages; ++stage) matrix.run_stage(stage, schedule);
    }
}

TEST_CASE("cuda: ranks with one micro-batch a step have the bits of one GPU that takes them all" *
          doctest::skip(kReduced)) {
  for (int world : {2, 3}) {
    Config config = config_of(0, 1, world);
    config.devices = sim_gpus();
    const Run one = run(config);
    check_against_cpu(one, run(config_of(0, 1, world)));
    check_memory(one);
    check_host_waits(one);
    config = config_of(3, world, 1);
    config.devices = sim_gpus();
    CHECK(difference(run(config), one) == "");
  }
}

// What mutants of zero/ must fail: few runs, and the schedules that are hardest on a missing wait. The CPU's run is one
// process, where nothing is sent: what a mutant breaks between ranks is broken on the GPUs alone.
TEST_CASE("case: cuda hand-over" * doctest::skip(kReduced)) {
  Matrix matrix(2, 2);
  for (const char* schedule : {"lazy", "late", "eager", "seed:3"})
    for (int stage = 0; stage < kStages; ++stage) {
      matrix.turn = 0;
      matrix.run_stage(stage, schedule);
      matrix.turn = 3;
      matrix.run_stage(stage, schedule);
    }
}

}  // namespace trencadis::test
