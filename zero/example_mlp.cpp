// The four strategies on a small MLP, four ranks as threads of this process: the same loss and the
// same bits, less memory.

#include "dist/thread/thread_communicator.h"
#include "layers/layers.h"
#include "runtime/cpu/backend.h"
#include "zero/engine.h"

using namespace trencadis;

constexpr int kRanks = 4, kSteps = 20;
constexpr int64_t kRows = 8, kWidth = 64, kClasses = 10;  // rows per rank and step

// [model]
// Three layers, each a unit: it is gathered, reduced and freed as one.
struct MLP3 : UnitModule {
  Linear in{kWidth, kWidth, Initialiser::normal(0.1f)}, middle{kWidth, kWidth, Initialiser::normal(0.1f)},
      out{kWidth, kClasses, Initialiser::normal(0.1f)};

  MLP3() {
    add_unit("in", in);
    add_unit("middle", middle);
    add_unit("out", out);
  }

  // x (rows, width) -> logits (rows, classes)
  Variable forward(const Variable& x) const {
    const Variable y = hidden(middle, hidden(in, x));
    return run(last_use_of(out), y, [&](const Variable& v) { return out.forward(v); });
  }

 private:
  // run() makes a region of each layer's work.
  Variable hidden(const Linear& layer, const Variable& x) const {
    return run(layer, x, [&](const Variable& v) { return bias_gelu(layer.product(v), layer.bias.variable); });
  }
};
// [end]

// A point cloud per class; row n is a function of n alone.
void make_rows(int64_t first, std::vector<float>& x, std::vector<int32_t>& labels) {
  for (int64_t r = 0; r < kRows; ++r) {
    labels[static_cast<size_t>(r)] = static_cast<int32_t>((first + r) % kClasses);
    for (int64_t c = 0; c < kWidth; ++c) {
      const auto n = static_cast<uint32_t>((first + r) * kWidth + c);
      const float noise = static_cast<float>(philox({n, 0, 0, 0}, 1)[0]) / 4294967296.0f - 0.5f;
      x[static_cast<size_t>(r * kWidth + c)] = noise + (c % kClasses == labels[static_cast<size_t>(r)] ? 1.0f : 0.0f);
    }
  }
}

struct Outcome {
  double loss = 0;
  uint32_t digest = 0;
  BytesByCategory rest{}, peak{};
};

// [rank]
// What one rank does. Nothing here depends on the stage.
Outcome train(int stage, Communicator& world) {
  Context context(make_cpu_backend());
  MLP3 model;
  ZeroOptions options;
  options.stage = stage;
  options.grad_clip = 1.0f;
  ZeroEngine engine(context, {&world}, model, make_adamw({}), options);

  Outcome outcome;
  std::vector<float> x(kRows * kWidth);
  std::vector<int32_t> labels(kRows);
  for (int64_t step = 0; step < kSteps; ++step) {
    make_rows((step * kRanks + world.rank()) * kRows, x, labels);
    engine.micro_batch(kRows, [&](const Tensor& totals) {
      const Variable logits = model.forward(Variable(Tensor::from(context, x, {kRows, kWidth})));
      return softmax_cross_entropy(logits, Tensor::from(context, labels, {kRows}), totals);
    });
    outcome.loss = engine.step(1e-3f).loss;
  }
  outcome.rest = context.memory().live();
  outcome.peak = context.memory().peak();
  outcome.digest = engine.digest();
  return outcome;
}
// [end]

int main() {
  fmt::print("stage   loss   same bits   P rest   G rest   O rest   P peak   G peak   (bytes of rank 0)\n");
  uint32_t digest_of_ddp = 0;
  bool all_same = true;
  for (int stage = 0; stage < kStages; ++stage) {
    std::vector<Outcome> outcomes(kRanks);
    run_on_threads(kRanks,
                   [&](Communicator& world) { outcomes[static_cast<size_t>(world.rank())] = train(stage, world); });
    const Outcome& o = outcomes[0];
    if (stage == 0) digest_of_ddp = o.digest;
    const bool same = o.digest == digest_of_ddp;
    all_same = all_same && same;
    constexpr auto P = static_cast<size_t>(MemoryCategory::parameter);
    constexpr auto G = static_cast<size_t>(MemoryCategory::gradient);
    constexpr auto O = static_cast<size_t>(MemoryCategory::optimizer);
    fmt::print("{:>5}  {:.4f}  {:>9}  {:>6}   {:>6}   {:>6}   {:>6}   {:>6}\n", stage, o.loss, same ? "yes" : "NO",
               o.rest[P], o.rest[G], o.rest[O], o.peak[P], o.peak[G]);
  }
  return all_same ? 0 : 1;
}
