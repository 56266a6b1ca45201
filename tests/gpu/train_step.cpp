// Training steps of GPT-2 124M through ZeroEngine, one rank, on the CUDA backend: its speed, as JSON.
//
//   gpu_train_step [--batch B] [--steps N] [--tf32]    GPT-2 124M, sequences of 1024; B of them, 8
//   gpu_train_step --tiny                              a very small GPT on the device and on the CPU: the same losses?
//
// Every step trains on the same random tokens, so the loss must start at ln V and fall: a fast step that computes nonsense
// is an error. Exit code 77 where there is no GPU. Built for the simulator too, for --tiny.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "dist/local/local_communicator.h"
#include "models/gpt/gpt.h"
#include "runtime/cpu/backend.h"
#include "runtime/cuda/backend.h"
#include "runtime/random.h"
#include "zero/engine.h"

namespace trencadis {
namespace {

struct Work {
  ModelConfig model;
  int64_t batch = 8;
  int steps = 10;
};

struct Measured {
  std::vector<double> losses, milliseconds;
  int64_t parameters = 0, peak_bytes = 0;
};

// The batch that every step sees, and the tokens that follow: (batch, T + 1) numbers below the vocabulary.
std::vector<int32_t> random_tokens(const Work& work) {
  std::vector<int32_t> tokens(static_cast<size_t>(work.batch * (work.model.block_size + 1)));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>(philox({static_cast<uint32_t>(i), 0, 0, 0}, random_key(5))[0] %
                                     static_cast<uint32_t>(work.model.vocab_size));
  return tokens;
}

Measured train(Context& context, const Work& work) {
  using Clock = std::chrono::steady_clock;
  const int64_t B = work.batch, T = work.model.block_size;
  const std::unique_ptr<Communicator> alone = make_local_communicator();
  GPT model(work.model);
  ZeroOptions options;
  options.grad_clip = 1;
  options.seed = 1;
  ZeroEngine engine(context, {alone.get(), nullptr}, model.units(), make_adamw({}), options);
  model.set_observer(&engine);

  const std::vector<int32_t> tokens = random_tokens(work);
  std::vector<int32_t> ids, targets;
  for (int64_t b = 0; b < B; ++b) {
    const auto row = tokens.begin() + b * (T + 1);
    ids.insert(ids.end(), row, row + T);
    targets.insert(targets.end(), row + 1, row + T + 1);
  }
  Measured measured;
  measured.parameters = model.parameter_count();
  for (int step = 0; step < work.steps; ++step) {
    const auto begin = Clock::now();
    engine.micro_batch(B * T, [&](const Tensor& totals) {
      return model.loss(Tensor::from(context, ids, {B, T}), Tensor::from(context, targets, {B, T}), {.training = true},
                        totals);
    });
    measured.losses.push_back(engine.step(6e-4f).loss);
    context.compute_stream().synchronize();  // the optimizer's kernels are still under way
    measured.milliseconds.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  for (const int64_t bytes : context.memory().peak()) measured.peak_bytes += bytes;
  return measured;
}

int tiny() {
  const Work work = {
      .model = {.n_layer = 2, .n_head = 2, .n_embd = 32, .block_size = 24, .vocab_size = 96}, .batch = 2, .steps = 4};
  Context device(make_cuda_backend()), cpu(make_cpu_backend());
  const Measured got = train(device, work), want = train(cpu, work);
  double worst = 0;
  for (size_t i = 0; i < want.losses.size(); ++i) {
    const double error = std::abs(got.losses[i] - want.losses[i]);
    worst = std::isfinite(error) ? std::max(worst, error) : 1;
  }
  fmt::print("{{\"losses\": [{:.6f}], \"losses_on_the_cpu\": [{:.6f}], \"largest_difference\": {:.2e}}}\n",
             fmt::join(got.losses, ", "), fmt::join(want.losses, ", "), worst);
  // Sums in another order move a loss of 4.6 by some 1e-6; a wrong mask in attention's backward alone moves it by 3e-5.
  if (worst < 5e-6 && want.losses.back() < want.losses.front()) return 0;
  fmt::print(stderr, "gpu_train_step: losses differ by more than 5e-6, or do not fall\n");
  return 1;
}

int gpt2(int64_t batch, int steps, bool tf32) {
  const Work work = {.model = {.n_layer = 12, .n_head = 12, .n_embd = 768, .block_size = 1024, .vocab_size = 50257},
                     .batch = batch,
                     .steps = steps};
  Context context(make_cuda_backend({.tf32 = tf32}));
  const Measured measured = train(context, work);
  // The first steps load kernels and fill the pool.
  std::vector<double> times(measured.milliseconds.begin() + std::min(2, steps - 1), measured.milliseconds.end());
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const auto tokens = static_cast<double>(batch * work.model.block_size);
  fmt::print(
      "{{\"parameters\": {}, \"layers\": {}, \"channels\": {}, \"sequence\": {}, \"batch\": {}, \"steps\": {}, "
      "\"arithmetic\": \"{}\", \"step_ms\": {:.3f}, \"tokens_per_sec\": {:.1f}, \"peak_bytes\": {}, "
      "\"losses\": [{:.5f}]}}\n",
      measured.parameters, work.model.n_layer, work.model.n_embd, work.model.block_size, batch, steps,
      tf32 ? "tf32" : "f32", median, tokens / median * 1e3, measured.peak_bytes, fmt::join(measured.losses, ", "));
  const double expected = std::log(static_cast<double>(work.model.vocab_size));
  if (std::abs(measured.losses.front() - expected) < 0.5 && measured.losses.back() < measured.losses.front()) return 0;
  fmt::print(stderr, "gpu_train_step: the loss must start near {:.2f} and fall\n", expected);
  return 1;
}

int run(const std::vector<std::string>& arguments) {
  bool is_tiny = false, tf32 = false;
  int64_t batch = 8;
  int steps = 10;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool has_value = i + 1 < arguments.size();
    if (arguments[i] == "--tiny") {
      is_tiny = true;
    } else if (arguments[i] == "--tf32") {
      tf32 = true;
    } else if (arguments[i] == "--batch" && has_value) {
      batch = std::stoll(arguments[++i]);
    } else if (arguments[i] == "--steps" && has_value) {
      steps = std::max(2, std::stoi(arguments[++i]));
    } else {
      fmt::print(stderr, "gpu_train_step: what is '{}'? --batch B, --steps N, --tf32, --tiny\n", arguments[i]);
      return 2;
    }
  }
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0) {
    fmt::print("skipped: no GPU ({})\n", cudaGetErrorString(status));
    return 77;
  }
  return is_tiny ? tiny() : gpt2(batch, steps, tf32);
}

}  // namespace
}  // namespace trencadis

int main(int argc, char** argv) {
  try {
    return trencadis::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_train_step: {}\n", error.what());
    return 1;
  }
}
