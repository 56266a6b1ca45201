// Under mpirun: after the start and after every step all ranks hold the same parameters, in every stage, and they are those
// of one process that takes the same micro-batches. Each rank trains that one process itself, beside its share of the job.
#include "dist/local/local_communicator.h"
#include "dist/mpi/mpi_communicator.h"
#include "dist/mpi/mpi_environment.h"
#include "models/gpt/gpt.h"
#include "runtime/cpu/backend.h"
#include "zero/engine.h"

using namespace trencadis;

namespace {

constexpr int64_t kBatch = 2, kLength = 5, kVocabulary = 29;
constexpr int kSteps = 5;

// One training, alone or as one of several ranks; the model has odd sizes, so that shards are cut anywhere.
class Training {
 public:
  Training(int stage, Communicator& comm, int grad_accum)
      : context_(make_cpu_backend({.threads = 1, .misalign = 0, .poison = true})),
        model_(config()),
        grad_accum_(grad_accum) {
    ZeroOptions options;
    options.stage = stage;
    options.grad_accum = grad_accum;
    options.grad_clip = 0.5f;
    options.seed = 7;
    engine_ =
        std::make_unique<ZeroEngine>(context_, ZeroGroups{&comm, nullptr}, model_.units(), make_adamw({}), options);
    model_.set_observer(engine_.get());
  }

  // Micro-batch m = a W + r is rank r's a-th.
  void step(int64_t number, int rank, int world) {
    for (int a = 0; a < grad_accum_; ++a) {
      const int64_t m = number * grad_accum_ * world + a * world + rank;
      std::vector<int32_t> ids, targets;
      for (uint32_t i = 0; i < kBatch * kLength; ++i) {
        const auto words = philox({i, static_cast<uint32_t>(m), 0, 0}, 3);
        ids.push_back(static_cast<int32_t>(words[0] % kVocabulary));
        targets.push_back(words[1] % 5 == 0 ? -1 : static_cast<int32_t>(words[2] % kVocabulary));
      }
      const Tensor x = Tensor::from(context_, ids, {kBatch, kLength}),
                   y = Tensor::from(context_, targets, {kBatch, kLength});
      ForwardState state;
      state.training = true;
      state.step = number;
      state.first_sample = m * kBatch;
      engine_->micro_batch(kBatch * kLength, [&](const Tensor& totals) { return model_.loss(x, y, state, totals); });
    }
    engine_->step(1e-2f);
  }

  int64_t digest() { return engine_->digest(); }

 private:
  static ModelConfig config() {
    ModelConfig config;
    config.n_layer = 3;
    config.n_head = 1;
    config.n_embd = 11;
    config.block_size = kLength;
    config.vocab_size = kVocabulary;
    config.dropout = 0.1f;
    return config;
  }

  Context context_;
  GPT model_;
  int grad_accum_;
  std::unique_ptr<ZeroEngine> engine_;
};

// The digest of every rank.
std::vector<int64_t> digests(Training& training, Communicator& comm) {
  Context context(make_cpu_backend());
  std::vector<int64_t> all(static_cast<size_t>(comm.size()), training.digest());
  const View view(all.data(), comm.size());
  comm.all_gather(view.slice(comm.rank(), 1), view, context.compute_stream(), {"digests", Traffic::other});
  return all;
}

int run() {
  const auto world = make_mpi_world();
  int failures = 0;
  for (int stage = 0; stage < kStages; ++stage) {
    const auto alone = make_local_communicator();
    Training one(stage, *alone, world->size()), ours(stage, *world, 1);
    for (int64_t s = 0; s <= kSteps; ++s) {
      if (s > 0) {
        one.step(s - 1, 0, 1);
        ours.step(s - 1, world->rank(), world->size());
      }
      const int64_t expected = one.digest();
      const std::vector<int64_t> got = digests(ours, *world);
      for (int r = 0; r < world->size(); ++r) {
        if (got[static_cast<size_t>(r)] == expected) continue;
        ++failures;
        fmt::print("stage {}, after step {}: rank {} has {:08X}, one process {:08X}\n", stage, s, r,
                   got[static_cast<size_t>(r)], expected);
      }
    }
  }
  if (world->rank() == 0 && failures == 0)
    fmt::print("{} stages, {} ranks, {} steps: equal on all ranks and to one process\n", kStages, world->size(),
               kSteps);
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main() {
  const MpiEnvironment mpi;
  return run();
}
