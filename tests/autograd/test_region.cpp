// Regions: the four moments in order, recomputation (activation checkpointing) with the same bits and less memory, and
// parameters whose memory comes and goes between the moments, as under ZeRO-3.
#include "autograd/ops/ops.h"
#include "autograd/region.h"
#include "autograd/region_log.h"
#include "runtime/kernel_test.h"

namespace trencadis::test {
namespace {

using Variables = std::vector<Variable>;

struct Recorder : RegionLog {
  std::string line(const char* moment, const RegionUse& use) const override {
    return fmt::format("{} {}{}", moment, use.name, use.recording ? "" : " (not recording)");
  }
};

RegionUse use_of(std::string name, int unit = 0) {
  RegionUse use;
  use.name = std::move(name);
  use.unit = unit;
  return use;
}

// y = x + dropout(gelu(x W1 + b) W2), a block in small.
struct Net {
  static constexpr int64_t kB = 3, kT = 40, kC = 8;
  Context context{make_cpu_backend({.poison = true})};
  Variable w1{Tensor::from(context, random_floats(4 * kC * kC, 1, 0.5f), {4 * kC, kC}), true, "w1"};
  Variable b{Tensor::from(context, random_floats(4 * kC, 2), {4 * kC}), true, "b"};
  Variable w2{Tensor::from(context, random_floats(4 * kC * kC, 3, 0.5f), {kC, 4 * kC}), true, "w2"};
  Variable x{Tensor::from(context, random_floats(kB* kT* kC, 4), {kB, kT, kC}), true, "x"};

  Variable block(const Variable& in, uint64_t site) const {
    DropoutMask mask;
    mask.probability = 0.5f;
    mask.site = site;
    return add(in, dropout(linear(bias_gelu(linear(in, w1), b), w2), mask));
  }
  // One block as a region.
  Variable region_of_block(RegionObserver* observer, const Variable& in, int i, bool recompute) {
    return region(
        observer, use_of(fmt::format("block {}", i), i), recompute, {in},
        [=, this](const Variables& inner) -> Variables { return {block(inner[0], static_cast<uint64_t>(i))}; })[0];
  }
  Tensor one(float value) { return Tensor::from(context, std::vector<float>{value}, {1}); }
  Tensor seed() { return Tensor::from(context, random_floats(x.value().size(), 5), x.value().shape()); }
  std::vector<std::vector<float>> gradients() {
    std::vector<std::vector<float>> all;
    for (Variable* v : {&w1, &b, &w2, &x}) all.push_back(v->take_gradient().to_vector());
    return all;
  }
};

TEST_CASE_FIXTURE(Net, "the observer sees forward and backward of each use, in order, around what happens inside") {
  for (const bool recompute : {false, true}) {
    CAPTURE(recompute);
    Recorder recorder;
    const auto run = [&](const char* name) {
      return [&recorder, name, this](const Variables& in) -> Variables {
        recorder.log.push_back(fmt::format("run {}", name));
        return {record("noted", {in[0]}, in[0].value(), [&recorder, name](Tensors g) -> Tensors {
          recorder.log.push_back(fmt::format("backward of {}", name));
          return g;
        })};
      };
    };
    const Variable y = region(&recorder, use_of("a"), recompute, {x}, run("a"))[0];
    const Variable z = region(&recorder, use_of("b"), recompute, {y}, run("b"))[0];
    CHECK(recorder.log ==
          Log{"before_forward a", "run a", "after_forward a", "before_forward b", "run b", "after_forward b"});
    recorder.log.clear();
    backward({Edge(z)}, {seed()});
    CHECK(recorder.log == (recompute ? Log{"before_backward b", "run b", "backward of b", "after_backward b",
                                           "before_backward a", "run a", "backward of a", "after_backward a"}
                                     : Log{"before_backward b", "backward of b", "after_backward b",
                                           "before_backward a", "backward of a", "after_backward a"}));
    CHECK(x.take_gradient().to_vector() == seed().to_vector());
  }
}

TEST_CASE_FIXTURE(Net, "a region, recomputed or not, gives the bits of the plain graph, with dropout") {
  const auto gradients_with = [&](auto&& layer) {
    Variable y = x;
    for (int i = 0; i < 3; ++i) y = layer(y, i);
    const std::vector<float> value = y.value().to_vector();
    backward({Edge(y)}, {seed()});
    auto all = gradients();
    all.push_back(value);
    return all;
  };
  const auto plain = gradients_with([&](const Variable& in, int i) { return block(in, static_cast<uint64_t>(i)); });
  Recorder recorder;
  for (RegionObserver* observer : {static_cast<RegionObserver*>(nullptr), static_cast<RegionObserver*>(&recorder)})
    for (const bool recompute : {false, true}) {
      CAPTURE(recompute);
      CHECK(gradients_with([&](const Variable& in, int i) { return region_of_block(observer, in, i, recompute); }) ==
            plain);
    }
  // The dropout is not idle: half of what it sees is dropped.
  CHECK(plain.back() != x.value().to_vector());
}

TEST_CASE_FIXTURE(Net, "recomputation keeps the input of each region, and nothing else, from forward to backward") {
  constexpr int kBlocks = 6;
  const int64_t stream = x.value().bytes();
  int64_t peaks[2], kept[2];
  for (const bool recompute : {false, true}) {
    const int64_t before = context.memory().live_total();
    context.memory().reset_peak();
    Variable y = x;
    for (int i = 0; i < kBlocks; ++i) y = region_of_block(nullptr, y, i, recompute);
    kept[recompute] = context.memory().live_total() - before;
    backward({Edge(y)}, {seed()});
    peaks[recompute] = context.memory().peak_total() - before;
    y = Variable();
    gradients();
    CHECK(context.memory().live_total() == before);
  }
  // Plain, each block keeps its input, and before and after gelu four times as much; its output is
  // the next one's input.
  CHECK(kept[false] == kBlocks * 9 * stream);
  CHECK(kept[true] == kBlocks * stream);
  CHECK(peaks[true] < peaks[false] / 2);
}

TEST_CASE_FIXTURE(Net, "without recomputation a region keeps what its ops saved, not its inputs") {
  const Variable constant(Tensor::zeros(context, x.value().shape()));
  const int64_t before = context.memory().live_total();
  Variable y = x;
  for (int i = 0; i < 5; ++i)
    y = region(nullptr, use_of("additions", i), false, {y},
               [&](const Variables& in) -> Variables { return {add(in[0], constant)}; })[0];
  CHECK(context.memory().live_total() - before == y.value().bytes());  // an addition saves nothing
  backward({Edge(y)}, {seed()});
  CHECK(x.take_gradient().to_vector() == seed().to_vector());
}

TEST_CASE_FIXTURE(Net, "a region that is used twice: its gradients sum, and each use has its own moments") {
  Recorder recorder;
  const auto twice = [&](bool as_region) {
    Variable y = x;
    for (int i = 0; i < 2; ++i) y = as_region ? region_of_block(&recorder, y, 7, false) : block(y, 7);
    backward({Edge(y)}, {seed()});
    return gradients();
  };
  CHECK(twice(true) == twice(false));
  CHECK(recorder.log.size() == 8);
  CHECK(recorder.log[4] == "before_backward block 7");
  CHECK(recorder.log[6] == "before_backward block 7");
}

TEST_CASE_FIXTURE(Net, "under NoGrad a region runs, is observed, and records nothing") {
  Recorder recorder;
  const int64_t before = context.memory().live_total();
  {
    const NoGrad no_grad;
    const Variable y = region_of_block(&recorder, x, 1, true);
    CHECK_FALSE(y.requires_grad());
    CHECK(y.value().to_vector() == block(x, 1).value().to_vector());
  }
  CHECK(recorder.log == Log{"before_forward block 1 (not recording)", "after_forward block 1 (not recording)"});
  CHECK(context.memory().live_total() == before);
}

TEST_CASE_FIXTURE(Net, "regions within a region that is recomputed are recorded when it runs again") {
  Recorder recorder;
  const auto inner = [&](const Variables& in) -> Variables { return {region_of_block(&recorder, in[0], 1, false)}; };
  const Variable y = region(&recorder, use_of("outer"), true, {x}, inner)[0];
  backward({Edge(y)}, {seed()});
  CHECK(recorder.log == Log{"before_forward outer", "before_forward block 1 (not recording)",
                            "after_forward block 1 (not recording)", "after_forward outer", "before_backward outer",
                            "before_forward block 1", "after_forward block 1", "before_backward block 1",
                            "after_backward block 1", "after_backward outer"});
  const auto nested = gradients();
  backward({Edge(block(x, 1))}, {seed()});
  CHECK(gradients() == nested);
}

TEST_CASE_FIXTURE(Net, "several inputs and outputs, some unused, some passed through, some without a gradient") {
  Variable a(one(2.0f), true, "a"), b2(one(3.0f), true, "b");
  const Variable constant(one(5.0f));
  for (const bool recompute : {false, true}) {
    CAPTURE(recompute);
    const Variables out = region(nullptr, use_of("mixed"), recompute, {a, b2, constant}, [](const Variables& in) {
      return Variables{add(in[0], in[2]), in[0], in[2]};  // b is not used; a and the constant are passed through
    });
    CHECK(out[0].value().item() == 7);
    backward({Edge(out[0]), Edge(out[1])}, {one(1.0f), one(10.0f)});
    CHECK(a.take_gradient().item() == 11);
    CHECK_FALSE(b2.take_gradient().defined());
  }
}

// What ZeRO-3 does with a unit: the memory of its parameter exists only between the moments, and lies
// elsewhere each time.
struct Gatherer : RegionObserver {
  Gatherer(Context& context, std::vector<float> contents, bool in_backward)
      : values(std::move(contents)),
        gathers_in_backward(in_backward),
        storage(Storage::create_released(context, static_cast<int64_t>(values.size() * sizeof(float)),
                                         MemoryCategory::parameter, "unit h.0")) {
    storage->set_parts({{0, "h.0.mlp.c_fc.weight"}});
  }
  void gather() {
    storage->materialise();
    std::copy(values.begin(), values.end(), static_cast<float*>(storage->data()));
  }
  void before_forward(const RegionUse&) override { gather(); }
  void after_forward(const RegionUse&) override { storage->release(); }
  void before_backward(const RegionUse&) override {
    if (gathers_in_backward) gather();
  }
  void after_backward(const RegionUse&) override { storage->release(); }

  std::vector<float> values;
  bool gathers_in_backward;
  std::shared_ptr<Storage> storage;
};

TEST_CASE_FIXTURE(Net, "a parameter's memory may be gone between forward and backward; reading it then is an error") {
  const std::vector<float> contents = w1.value().to_vector();
  backward({Edge(block(x, 1))}, {seed()});
  const auto expected = gradients();
  for (const bool recompute : {false, true}) {
    CAPTURE(recompute);
    Gatherer gatherer(context, contents, true);
    w1.bind(Tensor(gatherer.storage, 0, w1.value().shape()));
    backward({Edge(region_of_block(&gatherer, x, 1, recompute))}, {seed()});
    CHECK(gradients() == expected);
    CHECK_FALSE(gatherer.storage->materialised());

    Gatherer forgetful(context, contents, false);
    w1.bind(Tensor(forgetful.storage, 0, w1.value().shape()));
    const Variable y = region_of_block(&forgetful, x, 1, recompute);
    const auto run_backward = [&] { backward({Edge(y)}, {seed()}); };
    // From the depth of a kernel's argument list up through two backward passes: the parameter is named, and the cure.
    expect_error(run_backward, "h.0.mlp.c_fc.weight (in storage unit h.0) is read while its memory is released");
    CHECK(grad_enabled());
    for (Variable* v : {&w1, &b, &w2, &x}) v->take_gradient();
  }
}

}  // namespace
}  // namespace trencadis::test
