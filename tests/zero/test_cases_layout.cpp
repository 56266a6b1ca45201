// Cases from the field, first part: layout, padding, offsets. Each test names its case.
#include <cmath>

#include "training.h"

namespace trencadis::test {

namespace {

// The same training as one process, for every stage and each of `worlds`; clipped, so that the norm matters too.
void check_equals_one_process(const MakeModel& model, const std::vector<int>& worlds, float clip = 0.1f) {
  for (int world : worlds) {
    Config config;
    config.model = model;
    config.clip = clip;
    config.grad_accum = world;
    const Run expected = run(config);
    REQUIRE(all_finite(expected.parameters));
    REQUIRE(difference(expected.parameters, expected.start) != "");
    config.grad_accum = 1;
    config.world = world;
    for (int stage : {0, 1, 2, 3}) {
      config.stage = stage;
      INFO(config.describe());
      const Run got = run(config);
      CHECK(difference(got.start, expected.start) == "");
      CHECK(difference(got, expected) == "");
    }
  }
}

MakeModel toy_of(std::vector<std::vector<Shape>> units) {
  ToySetup setup;
  setup.units = std::move(units);
  return toy(setup);
}

// A parameter that is a shape and no memory.
Parameter parameter_of(Shape shape, const char* name = "p") {
  Parameter p;
  p.name = name;
  p.shape = std::move(shape);
  p.variable = Variable(Tensor(), true, name);
  return p;
}

}  // namespace

TEST_CASE("layout: every parameter and every shard starts at 16 bytes, and the table covers each element once") {
  Parameter a = parameter_of({5}), b = parameter_of({7}), c = parameter_of({1}), d = parameter_of({2, 3, 3});
  for (int world : {1, 2, 3, 4, 7, 64}) {
    const FlatSegment segment({&a, &b, &c, &d}, true, world);
    CHECK(segment.shard() * 4 % kAlignmentBytes == 0);
    CHECK(segment.padded() == segment.shard() * world);
    CHECK(segment.padded() >= 5 + 7 + 1 + 18);
    for (const FlatEntry& entry : segment.entries()) CHECK(entry.offset * 4 % kAlignmentBytes == 0);

    std::vector<int> times(static_cast<size_t>(segment.padded()), 0);
    int64_t real = 0;
    for (int rank = 0; rank < world; ++rank) {
      CHECK(segment.range_of(rank).begin == rank * segment.shard());
      segment.for_each_slice(segment.range_of(rank), [&](const FlatSlice& slice) {
        CHECK(slice.offset == slice.entry->offset + slice.first);
        CHECK(slice.first + slice.count <= slice.entry->count);
        real += slice.count;
        for (int64_t i = 0; i < slice.count; ++i) ++times[static_cast<size_t>(slice.offset + i)];
      });
      segment.for_each_pad(segment.range_of(rank), [&](FlatRange pad) {
        CHECK(pad.size() > 0);
        for (int64_t i = pad.begin; i < pad.end; ++i) ++times[static_cast<size_t>(i)];
      });
    }
    CHECK(real == 5 + 7 + 1 + 18);
    CHECK(times == std::vector<int>(times.size(), 1));
  }
}

TEST_CASE("layout: a smaller type asks for more elements between two parameters") {
  Parameter a = parameter_of({5}), b = parameter_of({7});
  const FlatSegment segment({&a, &b}, true, 2, DType::bf16, DType::f32, DType::f32);
  CHECK(segment.entries()[1].offset == 8);  // 16 bytes of bf16
  CHECK(segment.shard() == 8);
}

TEST_CASE("layout: a parameter in two units is refused by name") {
  Parameter a = parameter_of({5}, "shared.weight");
  const std::vector<Unit> units = {{"one", {&a}}, {"two", {&a}}};
  CHECK_THROWS_WITH_AS(flatten(units, 2), doctest::Contains("shared.weight"), Error);
}

TEST_CASE("case: padding walks into the next parameter") {
  check_equals_one_process(toy_of({{{5}, {7}}}), {2, 3});
  check_equals_one_process(toy_of({{{5}, {7}}, {{1}, {1}, {1}}, {{7}, {5}}}), {2, 3, 4});
}

TEST_CASE("case: pads arrive poisoned, and are zero wherever something is sent or kept") {
  ToySetup setup;
  setup.units = {{{5}, {7}}, {{1}, {1}, {1}}};
  setup.frozen = [](const std::string& name) { return name == "u1.p1"; };
  for (int stage : {0, 1, 2, 3})
    for (int world : {1, 2, 3}) {
      Config config;
      config.model = toy(setup);
      config.stage = stage;
      config.world = world;
      config.grad_accum = 2;
      std::vector<float> found(static_cast<size_t>(world), 0);
      std::vector<int64_t> pads(static_cast<size_t>(world), 0);
      on_ranks(world, config.comm, [&](Communicator& comm) {
        Rank rank(config, comm);
        rank.step();
        rank.step();
        rank.engine->digest();  // waits for gathers
        float& sum = found[static_cast<size_t>(comm.rank())];
        int64_t& count = pads[static_cast<size_t>(comm.rank())];
        rank.engine->strategy().visit_shards([&](const ShardView& shard) {
          // All that the rank holds at rest, which in stages 0 to 2 is more than its shard.
          for (const Piece* piece : {&shard.segment.master, &shard.segment.gradient}) {
            if (!piece->memory.defined()) continue;
            shard.segment.layout->for_each_pad(piece->range, [&](FlatRange pad) {
              const View view = piece->at(pad);
              count += view.size;
              for (int64_t i = 0; i < view.size; ++i) sum += std::abs(view.as<float>()[i]);
            });
          }
        });
      });
      INFO(config.describe());
      for (float sum : found) CHECK(sum == 0);  // a NaN is not 0 either
      for (int64_t count : pads) CHECK(count > 0);
    }
}

TEST_CASE("case: a shard holds no real element") {
  check_equals_one_process(toy_of({{{3}}}), {4, 8});
  check_equals_one_process(toy_of({{{3}}}), {4, 8}, /*clip=*/0);
}

TEST_CASE("case: oversize parameter") {
  check_equals_one_process(toy_of({{{10}}, {{8100}}, {{10}}, {{10}}}), {2, 3, 4});
  check_equals_one_process(toy_of({{{10}, {8100}, {10}}}), {2, 3});  // in the middle of a unit
}

TEST_CASE("case: odd total") {
  // 101 elements, a prime, cut unevenly over units and parameters.
  check_equals_one_process(toy_of({{{31}}, {{3, 3}, {19}}, {{41}, {1}}}), {2, 3, 4});
  check_equals_one_process(toy_of({{{101}}}), {2, 3, 4});
}

TEST_CASE("case: offsets past 2^31") {
  constexpr int64_t kHuge = (int64_t{1} << 31) + 3;
  Parameter before = parameter_of({5}), huge = parameter_of({kHuge}), after = parameter_of({7});
  const Unit unit = {"huge", {&before, &huge, &after}};
  for (int world : {1, 2, 3, 8}) {
    const std::vector<FlatUnit> units = flatten({unit, {"small", {}}}, world);
    const FlatSegment& segment = units[0].segments[0];
    CHECK(segment.entries()[1].offset == 8);
    CHECK(segment.entries()[2].offset == 8 + kHuge + 1);
    CHECK(segment.padded() >= 8 + kHuge + 1 + 7);
    CHECK(segment.padded() < 8 + kHuge + 1 + 7 + 4 * (world + 1));
    CHECK(segment.padded() == segment.shard() * world);
    int64_t real = 0, pads = 0;
    for (int rank = 0; rank < world; ++rank) {
      segment.for_each_slice(segment.range_of(rank), [&](const FlatSlice& slice) { real += slice.count; });
      segment.for_each_pad(segment.range_of(rank), [&](FlatRange pad) { pads += pad.size(); });
    }
    CHECK(real == 5 + kHuge + 7);
    CHECK(real + pads == segment.padded());

    // And the plan for it: its bytes need 35 bits.
    PlanConfig config;
    config.units = &units;
    config.uses.resize(1);
    config.world = world;
    const StagePlan plan = predict_stage(3, config);
    CHECK(plan.at_rest.parameter == 4 * segment.shard());
    CHECK(plan.at_rest.optimizer == 8 * segment.shard());
    CHECK(plan.peak.parameter == 4 * (segment.shard() + segment.padded()));
  }
}

TEST_CASE("case: tied embedding, odd vocabulary: every row changes on each rank, reduced once") {
  for (int world : {2, 4})
    for (int stage : {0, 1, 2, 3}) {
      GptSetup setup;
      setup.config.vocab_size = 3 * world + 2;
      Config config;
      config.model = gpt(setup);
      config.stage = stage;
      config.world = world;
      config.steps = 1;
      const Run got = run(config);
      INFO(config.describe());
      const std::vector<float>&start = got.start.at("wte.weight"), &end = got.parameters.at("wte.weight");
      for (size_t i = 0; i < end.size(); ++i) CHECK(end[i] != start[i]);  // the head's gradient reaches every row
      for (uint32_t digest : got.steps[0].digests) CHECK(digest == got.steps[0].digests[0]);
      // 4 units, the table's with its two uses among them, and as many reductions.
      const CollectiveKind kind = stage == 0 ? CollectiveKind::all_reduce : CollectiveKind::reduce_scatter;
      CHECK(got.steps[0].traffic[0].at(Traffic::training, kind).calls == 4);
      config.stage = 0;
      config.world = 1;
      config.grad_accum = world;
      CHECK(difference(got, run(config)) == "");
    }
}

TEST_CASE("case: tied embedding: its gradient is the sum of both uses") {
  // The same model untied, head and table starting alike, tells the two uses apart.
  const auto first_gradients = [](bool tied) {
    GptSetup setup;
    setup.config.tied = tied;
    Config config;
    config.model = gpt(setup);
    Values gradients;
    on_ranks(1, config.comm, [&](Communicator& comm) {
      Rank rank(config, comm);
      std::map<std::string, ConstView> views;
      rank.engine->visit_parameters([&](const Parameter& p, ConstView view) { views[p.name] = view; });
      if (!tied)
        rank.context.kernels().copy(View(const_cast<void*>(views["lm_head.weight"].data), DType::f32, 29 * 7),
                                    views["wte.weight"]);
      rank.step();
      collect_shards(*rank.engine, What::gradient, gradients);
    });
    return gradients;
  };
  Values tied = first_gradients(true), untied = first_gradients(false);
  for (size_t i = 0; i < untied["wte.weight"].size(); ++i) untied["wte.weight"][i] += untied["lm_head.weight"][i];
  untied.erase("lm_head.weight");
  CHECK(relative_error(tied, untied) < 1e-6);
}

TEST_CASE("case: one huge unit: reduction buffers peak at one such unit, not two") {
  GptSetup setup;
  setup.config = {.n_layer = 2, .n_head = 1, .n_embd = 8, .block_size = 5, .vocab_size = 5000, .tied = false};
  for (int stage : {2, 3}) {
    Config config;
    config.model = gpt(setup);
    config.stage = stage;
    config.world = 2;
    config.steps = 2;
    const Run got = run(config);
    const int64_t huge = int64_t{4} * 5000 * 8;
    for (const BytesByCategory& peak : got.steps[1].peak) {
      const int64_t lent = peak[static_cast<size_t>(MemoryCategory::gradient)] - got.plan.at_rest.gradient;
      CHECK(lent >= huge);
      CHECK(lent < huge + huge / 4);  // and a block beside it
      CHECK(lent == got.plan.peak.gradient - got.plan.at_rest.gradient);
    }
  }
}

TEST_CASE("case: parameters without a unit, and a unit without parameters to train") {
  // All of a unit frozen: it is gathered and never reduced. Nothing frozen at all, and a unit of one element.
  ToySetup setup;
  setup.units = {{{5}}, {{7}, {3}}, {{1}}};
  setup.frozen = [](const std::string& name) { return name.starts_with("u1"); };
  check_equals_one_process(toy(setup), {2, 3});
}

}  // namespace trencadis::test
