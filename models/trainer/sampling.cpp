#include "models/trainer/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/check.h"
#include "runtime/random.h"

namespace trencadis {

int32_t sample_token(const std::vector<float>& logits, const SamplingOptions& options, int64_t draw) {
  CHECK(!logits.empty(), "no logits to sample from");
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  const auto vocabulary = static_cast<int64_t>(logits.size());
  const int64_t k = options.top_k > 0 ? std::min(options.top_k, vocabulary) : vocabulary;
  std::partial_sort(order.begin(), order.begin() + k, order.end(), likelier);
  if (options.temperature <= 0) return order[0];

  const double largest = logits[static_cast<size_t>(order[0])];
  std::vector<double> weights(static_cast<size_t>(k));
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = std::exp((logits[static_cast<size_t>(order[i])] - largest) / options.temperature);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto counter = static_cast<uint64_t>(draw);
  const auto words = philox({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0},
                            random_key(options.seed, hash_name("sampling")));
  double left = (words[0] + 0.5) / 4294967296.0 * sum;
  for (size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[static_cast<size_t>(k - 1)];
}

}  // namespace trencadis
