// The GPT's structure: names, sizes and initial values as GPT-2's; units and regions; activation checkpointing with the
// same bits; the shortcut for generation; errors.
#include <map>
#include <set>

#include "models/gpt/gpt.h"
#include "runtime/kernel_test.h"

namespace trencadis::test {
namespace {

using Floats = std::vector<float>;
using Log = std::vector<std::string>;

ModelConfig small(bool tied = true, float dropout = 0) {
  return {.n_layer = 3, .n_head = 2, .n_embd = 12, .block_size = 9, .vocab_size = 19, .tied = tied, .dropout = dropout};
}

struct Recorder : RegionObserver {
  std::vector<RegionUse> forward, backward;
  int open = 0;
  void before_forward(const RegionUse& use) override { forward.push_back(use), ++open; }
  void after_forward(const RegionUse&) override { --open; }
  void before_backward(const RegionUse& use) override { backward.push_back(use), ++open; }
  void after_backward(const RegionUse&) override { --open; }
};

struct Run {
  Floats loss;
  std::map<std::string, Floats> gradients;
  int64_t peak_activations = 0;
  bool operator==(const Run& other) const { return loss == other.loss && gradients == other.gradients; }
};

Tensor ids_of(Context& context, const ModelConfig& config, int64_t B, int64_t T, uint64_t seed) {
  return Tensor::from(context, random_ints(B * T, seed, static_cast<int32_t>(config.vocab_size)), {B, T});
}

// Loss and gradients of one batch, from seed 1's weights made large enough that every branch counts.
Run run(const ModelConfig& config, RegionObserver* observer = nullptr, int threads = 1) {
  Context context(make_cpu_backend({.threads = threads, .poison = true}));
  GPT model(config);
  allocate_parameters(model, context, 1);
  for (Parameter* p : model.parameters())
    context.copy_from_host(p->variable.value(), random_floats(p->size(), hash_name(p->name), 0.5f).data());
  model.set_observer(observer);
  const Tensor ids = ids_of(context, config, 4, 9, 1), targets = ids_of(context, config, 4, 9, 2);
  context.memory().reset_peak();
  const Variable loss = model.loss(ids, targets, {.training = true, .seed = 3, .step = 4, .first_sample = 5});
  backward(loss, 1.0f / 36);
  Run result;
  result.loss = loss.value().to_vector();
  result.peak_activations = context.memory().peak()[static_cast<size_t>(MemoryCategory::activation)];
  for (Parameter* p : model.parameters()) result.gradients[p->name] = p->variable.gradient().to_vector();
  return result;
}

TEST_CASE("names, shapes and order are those of PyTorch's GPT-2") {
  ModelConfig config = small();
  config.n_layer = 1;
  for (const bool tied : {true, false}) {
    config.tied = tied;
    GPT model(config);
    std::vector<std::pair<std::string, Shape>> listed, expected = {{"wte.weight", {19, 12}},
                                                                   {"wpe.weight", {9, 12}},
                                                                   {"h.0.ln_1.weight", {12}},
                                                                   {"h.0.ln_1.bias", {12}},
                                                                   {"h.0.attn.c_attn.weight", {36, 12}},
                                                                   {"h.0.attn.c_attn.bias", {36}},
                                                                   {"h.0.attn.c_proj.weight", {12, 12}},
                                                                   {"h.0.attn.c_proj.bias", {12}},
                                                                   {"h.0.ln_2.weight", {12}},
                                                                   {"h.0.ln_2.bias", {12}},
                                                                   {"h.0.mlp.c_fc.weight", {48, 12}},
                                                                   {"h.0.mlp.c_fc.bias", {48}},
                                                                   {"h.0.mlp.c_proj.weight", {12, 48}},
                                                                   {"h.0.mlp.c_proj.bias", {12}},
                                                                   {"ln_f.weight", {12}},
                                                                   {"ln_f.bias", {12}}};
    if (!tied) expected.push_back({"lm_head.weight", {19, 12}});
    for (const Parameter* p : model.parameters()) listed.emplace_back(p->name, p->shape);
    CHECK(listed == expected);
  }
}

TEST_CASE("GPT-2's own sizes have GPT-2's numbers of parameters, and building them takes no memory") {
  ModelConfig config = {.n_layer = 12, .n_head = 12, .n_embd = 768, .block_size = 1024, .vocab_size = 50257};
  CHECK(GPT(config).parameter_count() == 124439808);
  config.n_layer = 48;
  config.n_head = 25;
  config.n_embd = 1600;
  CHECK(GPT(config).parameter_count() == 1557611200);
}

// Mean and deviation of n normal draws deviate by sd/sqrt(n) and sd/sqrt(2n); five of those are allowed.
TEST_CASE("initial values: normal 0.02, projections into the residual stream 0.02/sqrt(2L), zeros, ones") {
  ModelConfig config = small(false);
  config.n_layer = 4;
  config.n_embd = 48;
  Context context(make_cpu_backend({.poison = true}));
  GPT model(config);
  allocate_parameters(model, context, 42);
  for (const Parameter* p : model.parameters()) {
    CAPTURE(p->name);
    const Floats values = p->variable.value().to_vector();
    if (p->shape.size() == 1) {
      const bool gain = p->name.find("ln_") != std::string::npos && p->name.ends_with("weight");
      CHECK(values == Floats(values.size(), gain ? 1.0f : 0.0f));
      continue;
    }
    const double stddev = p->name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(2.0 * 4) : 0.02;
    const double n = static_cast<double>(values.size());
    double sum = 0, squares = 0;
    for (const float x : values) sum += x, squares += static_cast<double>(x) * x;
    CHECK(std::abs(sum / n) < 5 * stddev / std::sqrt(n));
    CHECK(std::abs(std::sqrt(squares / n) - stddev) < 5 * stddev / std::sqrt(2 * n));
  }
}

TEST_CASE("an untrained model expects each token with about the same probability: loss near ln V") {
  ModelConfig config = small();
  config.vocab_size = 256;
  Context context(make_cpu_backend());
  GPT model(config);
  allocate_parameters(model, context, 1);
  const NoGrad no_grad;
  const Tensor ids = ids_of(context, config, 4, 9, 1), targets = ids_of(context, config, 4, 9, 2);
  CHECK(model.loss(ids, targets, {}).value().item() / 36 == doctest::Approx(std::log(256.0)).epsilon(0.01));
}

TEST_CASE("every parameter belongs to exactly one unit; tied, the rest is one") {
  for (const bool tied : {true, false}) {
    GPT model(small(tied));
    std::multiset<const Parameter*> all;
    Log names;
    for (const Unit& unit : model.units()) {
      names.push_back(unit.name);
      all.insert(unit.parameters.begin(), unit.parameters.end());
    }
    const auto parameters = model.parameters();
    CHECK(all == std::multiset<const Parameter*>(parameters.begin(), parameters.end()));
    CHECK(names == (tied ? Log{"root", "h.0", "h.1", "h.2"} : Log{"embedding", "h.0", "h.1", "h.2", "head"}));
  }
}

TEST_CASE("the regions that run are those that uses() foretells; backward runs them in reverse") {
  for (const bool tied : {true, false})
    for (const bool checkpointing : {false, true}) {
      Recorder recorder;
      ModelConfig config = small(tied);
      config.activation_checkpointing = checkpointing;
      run(config, &recorder);
      const std::vector<RegionUse> expected = GPT(config).uses();
      REQUIRE(recorder.forward.size() == expected.size());
      REQUIRE(recorder.backward.size() == expected.size());
      CHECK(recorder.open == 0);
      for (size_t i = 0; i < expected.size(); ++i)
        for (const RegionUse& use : {recorder.forward[i], recorder.backward[expected.size() - 1 - i]}) {
          CHECK(use.name == expected[i].name);
          CHECK(use.unit == expected[i].unit);
          CHECK(use.recording);
          CHECK(use.backward_needs_parameters == (i > 0));
          CHECK(use.backward_follows == (i + 1 == expected.size()));
        }
      CHECK(expected.back().unit == (tied ? 0 : 4));
    }
}

TEST_CASE("the same bits with and without checkpointing, observer and threads; less memory with checkpointing") {
  for (const bool tied : {true, false})
    for (const float dropout : {0.0f, 0.5f}) {
      CAPTURE(tied);
      CAPTURE(dropout);
      ModelConfig config = small(tied, dropout);
      const Run plain = run(config);
      Recorder recorder;
      CHECK(run(config, &recorder) == plain);
      CHECK(run(config, nullptr, 3) == plain);
      config.activation_checkpointing = true;
      const Run checkpointed = run(config);
      CHECK(checkpointed == plain);
      CHECK(checkpointed.peak_activations < 0.6 * static_cast<double>(plain.peak_activations));
    }
  CHECK_FALSE(run(small(true, 0.5f)) == run(small(true, 0)));
}

TEST_CASE("next_token_logits is the last row of logits") {
  for (const bool tied : {true, false}) {
    const ModelConfig config = small(tied, 0.5f);  // dropout is off outside training
    Context context(make_cpu_backend({.poison = true}));
    GPT model(config);
    allocate_parameters(model, context, 1);
    for (int64_t T = 1; T <= config.block_size; ++T) {
      const Tensor ids = ids_of(context, config, 1, T, 4);
      const NoGrad no_grad;
      const Floats all = model.logits(ids, {}).value().to_vector();
      const Tensor last = model.next_token_logits(ids);
      CHECK(last.size() == config.vocab_size);
      // One row may be multiplied in another order than T rows.
      CHECK(relative_error(last.to_vector(), Floats(all.end() - config.vocab_size, all.end())) < 1e-6);
    }
  }
}

TEST_CASE("causality: a later token does not change earlier logits") {
  const ModelConfig config = small();
  Context context(make_cpu_backend());
  GPT model(config);
  allocate_parameters(model, context, 1);
  const NoGrad no_grad;
  std::vector<int32_t> tokens = random_ints(9, 1, 19);
  const Floats before = model.logits(Tensor::from(context, tokens, {1, 9}), {}).value().to_vector();
  tokens[5] = (tokens[5] + 1) % 19;
  const Floats after = model.logits(Tensor::from(context, tokens, {1, 9}), {}).value().to_vector();
  const auto rows = [](const Floats& logits, int first, int last) {
    return Floats(logits.begin() + first * 19, logits.begin() + last * 19);
  };
  CHECK(rows(after, 0, 5) == rows(before, 0, 5));
  for (int t = 5; t < 9; ++t) CHECK(rows(after, t, t + 1) != rows(before, t, t + 1));
}

TEST_CASE("what cannot work is an error that says why") {
  ModelConfig config = small();
  config.n_head = 5;
  expect_error([&] { GPT model(config); }, "n_embd 12 is not divisible by n_head 5");
  config.n_head = 0;
  expect_error([&] { GPT model(config); }, "n_head 0");
  config = small();
  Context context(make_cpu_backend());
  GPT model(config);
  allocate_parameters(model, context, 1);
  const auto logits = [&](const Tensor& ids) { model.logits(ids, {}); };
  expect_error([&] { logits(Tensor::zeros(context, {1, 10}, DType::i32)); }, "10 tokens, but 9 positions");
  expect_error([&] { logits(Tensor::from(context, std::vector<int32_t>{3, 19}, {1, 2})); }, "vocabulary of 19");
  expect_error([&] { model.next_token_logits(Tensor::zeros(context, {2, 3}, DType::i32)); }, "one sequence, not 2");
}

}  // namespace
}  // namespace trencadis::test
