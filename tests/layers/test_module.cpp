// Parameters: names and shapes as PyTorch's GPT-2 has them, and their initial values: distribution per parameter, and
// any slice drawn alone equal to that slice of the whole.
#include <map>

#include "layers/layers.h"
#include "runtime/kernel_test.h"

namespace trencadis::test {
namespace {

BlockConfig small_block() {
  BlockConfig config;
  config.channels = 64;
  config.heads = 4;
  config.residual_stddev = 0.005f;
  return config;
}

TEST_CASE("names, shapes and order of a block are those of PyTorch's GPT-2") {
  Block block(small_block());
  block.assign_names("h.3");
  std::vector<std::pair<std::string, Shape>> listed;
  for (const Parameter* p : block.parameters()) listed.emplace_back(p->name, p->shape);
  CHECK(listed == std::vector<std::pair<std::string, Shape>>{{"h.3.ln_1.weight", {64}},
                                                             {"h.3.ln_1.bias", {64}},
                                                             {"h.3.attn.c_attn.weight", {192, 64}},
                                                             {"h.3.attn.c_attn.bias", {192}},
                                                             {"h.3.attn.c_proj.weight", {64, 64}},
                                                             {"h.3.attn.c_proj.bias", {64}},
                                                             {"h.3.ln_2.weight", {64}},
                                                             {"h.3.ln_2.bias", {64}},
                                                             {"h.3.mlp.c_fc.weight", {256, 64}},
                                                             {"h.3.mlp.c_fc.bias", {256}},
                                                             {"h.3.mlp.c_proj.weight", {64, 256}},
                                                             {"h.3.mlp.c_proj.bias", {64}}});
  for (const Parameter* p : block.parameters()) CHECK(p->variable.name() == p->name);
  CHECK(block.full_name() == "h.3");
  CHECK(block.attn.c_proj.full_name() == "h.3.attn.c_proj");
}

TEST_CASE("a root without a prefix, and a linear layer without a bias") {
  Linear layer(3, 5, Initialiser::normal(1), /*with_bias=*/false);
  layer.assign_names();
  REQUIRE(layer.parameters().size() == 1);
  CHECK(layer.parameters()[0]->name == "weight");
  CHECK(layer.parameters()[0]->size() == 15);
  CHECK_FALSE(layer.bias.variable.defined());
}

TEST_CASE("a linear layer that nobody says more of begins as spread as PyTorch's") {
  // U(-k, k) with k = 1/sqrt(in) has the standard deviation k/sqrt(3).
  const Initialiser start = Linear(12, 5).weight.initialiser;
  CHECK(start.kind == Initialiser::Kind::normal);
  CHECK(start.stddev == doctest::Approx(1 / std::sqrt(12.0) / std::sqrt(3.0)));
}

TEST_CASE("a module has no memory until some is bound, and takes no more than its parameters") {
  Context context(make_cpu_backend({.poison = true}));
  Block block(small_block());
  block.assign_names("h.0");
  CHECK(context.memory().live_total() == 0);
  int64_t elements = 0;
  for (const Parameter* p : block.parameters()) {
    CHECK_FALSE(p->variable.value().defined());
    CHECK(p->trainable());
    elements += p->size();
  }
  allocate_parameters(block, context, 1);
  CHECK(context.memory().live()[static_cast<size_t>(MemoryCategory::parameter)] == elements * 4);
  CHECK(context.memory().live_total() == elements * 4);
}

// A sample of n draws has a mean that deviates by sd/sqrt(n), and a standard deviation that does by
// sd/sqrt(2n). Five such deviations happen once in 1.7 million draws; the draws are fixed by the seed, so the
// test passes always or never.
void check_normal(const std::vector<float>& values, double stddev) {
  const double n = static_cast<double>(values.size());
  double sum = 0, squares = 0, within = 0;
  for (const float x : values) {
    sum += x;
    squares += static_cast<double>(x) * x;
    within += std::abs(x) < stddev;
    REQUIRE(std::abs(x) < 6.7 * stddev);  // as far as 32 bits reach
  }
  CHECK(std::abs(sum / n) < 5 * stddev / std::sqrt(n));
  CHECK(std::abs(std::sqrt(squares / n) - stddev) < 5 * stddev / std::sqrt(2 * n));
  // The shape: 68.27 % within one deviation, a count whose own deviation is sqrt(p (1-p) / n).
  CHECK(std::abs(within / n - 0.682689) < 5 * std::sqrt(0.2166 / n));
}

TEST_CASE("initial values per parameter: normal with its deviation, zeros, ones") {
  Context context(make_cpu_backend({.poison = true}));
  for (const uint64_t seed : {0, 1, 42}) {
    Block block(small_block());
    block.assign_names("h.0");
    allocate_parameters(block, context, seed);
    const std::map<std::string, float> deviations = {{"h.0.attn.c_attn.weight", 0.02f},
                                                     {"h.0.attn.c_proj.weight", 0.005f},
                                                     {"h.0.mlp.c_fc.weight", 0.02f},
                                                     {"h.0.mlp.c_proj.weight", 0.005f}};
    for (const Parameter* p : block.parameters()) {
      CAPTURE(p->name);
      const std::vector<float> values = p->variable.value().to_vector();
      if (deviations.count(p->name))
        check_normal(values, deviations.at(p->name));
      else
        CHECK(values == std::vector<float>(
                            values.size(),
                            p->name.find(".ln_") != std::string::npos && p->name.ends_with(".weight") ? 1.0f : 0.0f));
    }
  }
}

TEST_CASE("other parameters, and other seeds, start with other values; the same with the same") {
  Context context(make_cpu_backend());
  const auto draw = [&](const char* name, uint64_t seed) {
    Linear layer(8, 8, Initialiser::normal(1));
    layer.assign_names(name);
    allocate_parameters(layer, context, seed);
    return layer.weight.variable.value().to_vector();
  };
  CHECK(draw("a", 1) == draw("a", 1));
  CHECK(draw("a", 1) != draw("b", 1));
  CHECK(draw("a", 1) != draw("a", 2));
}

TEST_CASE("any slice that is initialised alone has the bits of that slice of the whole") {
  Parameter parameter;
  parameter.name = "h.0.mlp.c_fc.weight";
  parameter.shape = {97, 53};
  const int64_t n = parameter.size();
  for (const Initialiser start : {Initialiser::normal(0.02f), Initialiser::ones(), Initialiser::zeros()}) {
    parameter.initialiser = start;
    Context context(make_cpu_backend());
    const Tensor whole = Tensor::empty(context, {n});
    initialise(whole, parameter, 0, 7, context.kernels());
    const std::vector<float> expected = whole.to_vector();
    // Slices that start and end anywhere relative to a draw's four numbers; among them every quarter of W = 4 ranks.
    for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{{0, 1},
                                                                               {1, 1},
                                                                               {3, 2},
                                                                               {n - 1, 1},
                                                                               {n, 0},
                                                                               {5, 1000},
                                                                               {2, n - 2},
                                                                               {0, n / 4},
                                                                               {n / 4, n / 4},
                                                                               {n / 2, n / 4}}) {
      CAPTURE(first);
      Context other(make_cpu_backend({.threads = 2, .misalign = 20, .poison = true}));
      const Tensor slice = Tensor::empty(other, {count});
      initialise(slice, parameter, first, 7, other.kernels());
      CHECK(slice.to_vector() == std::vector<float>(expected.begin() + first, expected.begin() + first + count));
    }
    const Tensor too_long = Tensor::empty(context, {3});
    expect_error([&] { initialise(too_long, parameter, n - 2, 7, context.kernels()); }, "h.0.mlp.c_fc.weight");
  }
}

TEST_CASE("a frozen parameter gets no gradient, the others do") {
  Context context(make_cpu_backend());
  Block block(small_block());
  block.assign_names("h.0");
  allocate_parameters(block, context, 1);
  const std::vector<Parameter*> parameters = block.parameters();
  for (size_t i = 0; i < parameters.size(); i += 2) parameters[i]->freeze();
  const Variable x(Tensor::from(context, random_floats(2 * 3 * 64, 1), {2, 3, 64}));
  const Variable y = block.forward(x, {});
  backward({Edge(y)}, {Tensor::from(context, random_floats(y.value().size(), 2), y.value().shape())});
  for (size_t i = 0; i < parameters.size(); ++i) {
    CAPTURE(parameters[i]->name);
    CHECK(parameters[i]->trainable() == (i % 2 == 1));
    CHECK(parameters[i]->variable.take_gradient().defined() == (i % 2 == 1));
  }
}

}  // namespace
}  // namespace trencadis::test
