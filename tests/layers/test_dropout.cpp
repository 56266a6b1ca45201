// Dropout in layers: which elements fall depends on (seed, step, site, sample counted over the training, element) and
// on nothing else, so ranks, micro-batches and recomputation see the same masks.
#include "layers/layers.h"
#include "runtime/kernel_test.h"

namespace trencadis::test {
namespace {

struct Site : Module {
  explicit Site(const std::string& name, float probability = 0.5f) : dropout(probability) {
    add_child(name, dropout);
    assign_names();
  }
  Dropout dropout;
};

struct Fixture {
  static constexpr int64_t kSamples = 6, kElements = 1001;
  Context context{make_cpu_backend({.threads = 2, .poison = true})};

  static ForwardState training(uint64_t seed = 1, int64_t step = 2, int64_t first_sample = 100) {
    return {.training = true, .seed = seed, .step = step, .first_sample = first_sample};
  }
  // What becomes of `samples` rows of ones.
  std::vector<float> mask(const Dropout& dropout, const ForwardState& state, int64_t samples = kSamples) {
    const Variable ones(Tensor::from(context, std::vector<float>(static_cast<size_t>(samples * kElements), 1.0f),
                                     {samples, kElements}));
    return dropout.forward(ones, state).value().to_vector();
  }
};

using Floats = std::vector<float>;

// The share of places where two masks agree: 1/2 when they are independent and p is 1/2.
double agreement(const Floats& a, const Floats& b) {
  double same = 0;
  for (size_t i = 0; i < a.size(); ++i) same += a[i] == b[i];
  return same / static_cast<double>(a.size());
}

TEST_CASE_FIXTURE(Fixture, "the share p of elements falls, the others are scaled by 1/(1-p), so the mean stays") {
  for (const float p : {0.1f, 0.5f, 0.9f}) {
    CAPTURE(p);
    const Site site("drop", p);
    const Floats y = mask(site.dropout, training());
    double dropped = 0;
    for (const float v : y) {
      REQUIRE((v == 0 || v == 1 / (1 - p)));
      dropped += v == 0;
    }
    const double n = static_cast<double>(y.size());
    CHECK(std::abs(dropped / n - p) < 5 * std::sqrt(p * (1 - p) / n));  // five deviations of a binomial share
  }
}

TEST_CASE_FIXTURE(Fixture, "a batch may be split anywhere: the same masks") {
  const Site site("drop");
  const Floats whole = mask(site.dropout, training());
  for (int64_t cut = 1; cut < kSamples; ++cut) {
    Floats parts = mask(site.dropout, training(1, 2, 100), cut);
    const Floats rest = mask(site.dropout, training(1, 2, 100 + cut), kSamples - cut);
    parts.insert(parts.end(), rest.begin(), rest.end());
    CHECK(parts == whole);
  }
}

TEST_CASE_FIXTURE(Fixture, "sites, steps, seeds and samples have masks that know nothing of each other") {
  const Site site("h.0.mlp.dropout"), other("h.1.mlp.dropout");
  const Floats first = mask(site.dropout, training());
  CHECK(mask(site.dropout, training()) == first);
  const double bound = 5 * 0.5 / std::sqrt(static_cast<double>(first.size()));
  CHECK(std::abs(agreement(first, mask(other.dropout, training())) - 0.5) < bound);
  CHECK(std::abs(agreement(first, mask(site.dropout, training(2))) - 0.5) < bound);
  CHECK(std::abs(agreement(first, mask(site.dropout, training(1, 3))) - 0.5) < bound);
  CHECK(std::abs(agreement(first, mask(site.dropout, training(1, 2, 100 + kSamples))) - 0.5) < bound);
  // Swapping the numbers of step and seed is another mask too.
  CHECK(mask(site.dropout, training(3, 2)) != mask(site.dropout, training(2, 3)));
  // Neighbouring samples of one batch.
  const Floats sample0(first.begin(), first.begin() + kElements);
  const Floats sample1(first.begin() + kElements, first.begin() + 2 * kElements);
  CHECK(std::abs(agreement(sample0, sample1) - 0.5) < 5 * 0.5 / std::sqrt(static_cast<double>(kElements)));
}

TEST_CASE_FIXTURE(Fixture, "outside training, and with p = 0, the input comes back itself") {
  const Site site("drop"), idle("drop", 0);
  const Variable x(Tensor::from(context, random_floats(6, 1), {2, 3}), true);
  ForwardState evaluation = training();
  evaluation.training = false;
  CHECK(site.dropout.forward(x, evaluation).value().data<float>() == x.value().data<float>());
  CHECK(idle.dropout.forward(x, training()).value().data<float>() == x.value().data<float>());
}

TEST_CASE_FIXTURE(Fixture, "a block with dropout everywhere: samples are treated alike however the batch is split") {
  BlockConfig config;
  config.channels = 12;
  config.heads = 3;
  config.dropout = 0.5f;
  Block block(config);
  block.assign_names("h.0");
  allocate_parameters(block, context, 3);
  for (Parameter* p : block.parameters())  // larger weights than GPT-2's start, so that the branches count
    if (p->shape.size() == 2) context.copy_from_host(p->variable.value(), random_floats(p->size(), 4, 0.5f).data());
  const int64_t T = 7, size = T * 12;
  const Floats x = random_floats(4 * size, 5);
  const auto run = [&](int64_t first, int64_t count, bool dropping) {
    ForwardState state = training(1, 2, 100 + first);
    state.training = dropping;
    const Floats part(x.begin() + first * size, x.begin() + (first + count) * size);
    return block.forward(Variable(Tensor::from(context, part, {count, T, 12})), state).value().to_vector();
  };
  const Floats whole = run(0, 4, true);
  for (int64_t i = 0; i < 4; ++i) {
    const Floats expected(whole.begin() + i * size, whole.begin() + (i + 1) * size);
    // Another number of rows may sum a matrix product in another order; another mask would differ in the first digit.
    CHECK(relative_error(run(i, 1, true), expected) < 1e-5);
  }
  CHECK(relative_error(run(0, 4, false), whole) > 0.1);
}

}  // namespace
}  // namespace trencadis::test
