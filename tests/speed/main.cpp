// Fails only when training has become grossly slow: a step of a small GPT, forward and backward on one thread, must keep
// half of the rate that was recorded here, as a share of the rate of plain matrix products in the same process. Both are
// measured in turns, and what counts is the fastest of each, so that a busy machine slows both or neither.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <vector>

#include "models/gpt/gpt.h"
#include "runtime/blas/gemm.h"
#include "runtime/cpu/backend.h"

using namespace trencadis;

namespace {

// Measured beside OpenBLAS' products on an Intel Xeon with AVX-512: 0.80 to 0.83.
constexpr double kRecordedShare = 0.8;

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main() {
  const ModelConfig config{.n_layer = 2, .n_head = 4, .n_embd = 256, .block_size = 128};
  const int64_t B = 4, T = config.block_size, C = config.n_embd, V = config.vocab_size;
  Context context(make_cpu_backend({.threads = 1}));
  GPT model(config);
  allocate_parameters(model, context, /*seed=*/1);
  std::vector<Tensor> gradients;
  for (Parameter* p : model.parameters()) gradients.push_back(Tensor::zeros(context, p->shape));
  std::vector<int32_t> text(static_cast<size_t>(B * T));
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int32_t>(i * 7919 % 251);
  const Tensor ids = Tensor::from(context, text, {B, T});
  const auto step = [&] {
    for (size_t i = 0; i < gradients.size(); ++i) model.parameters()[i]->variable.lend_gradient(gradients[i]);
    backward(model.loss(ids, ids, {.training = true}), 1.0f / static_cast<float>(B * T));
  };
  // Multiply-adds: 12 C^2 a block and token, the head, and attention over T/2 keys on average, twice; backward as much
  // again two times.
  const double step_products =
      3.0 * static_cast<double>(B * T) * static_cast<double>(config.n_layer * (12 * C * C + T * C) + V * C);

  const int64_t M = 512, N = 512, K = 512;
  const std::vector<float> a(static_cast<size_t>(M * K), 0.5f), b(static_cast<size_t>(K * N), 0.25f);
  std::vector<float> c(static_cast<size_t>(M * N));
  const auto product = [&] { gemm(false, true, M, N, K, 1, a.data(), K, b.data(), K, 0, c.data(), N); };

  double step_seconds = std::numeric_limits<double>::infinity(), product_seconds = step_seconds;
  for (int round = 0; round < 12; ++round) {
    step_seconds = std::min(step_seconds, seconds_of(step));
    for (int i = 0; i < 4; ++i) product_seconds = std::min(product_seconds, seconds_of(product));
  }
  const double step_rate = 2e-9 * step_products / step_seconds;
  const double product_rate = 2e-9 * static_cast<double>(M * N * K) / product_seconds;
  const double share = step_rate / product_rate;
  std::printf("a step: %.1f ms, %.1f GF/s; plain products: %.1f GF/s; share %.2f, recorded %.2f, at least %.2f\n",
              step_seconds * 1e3, step_rate, product_rate, share, kRecordedShare, kRecordedShare / 2);
  if (share >= kRecordedShare / 2) return 0;
  std::printf("training has become slow: compare `train_gpt --profile` of this build and of an older one\n");
  return 1;
}
