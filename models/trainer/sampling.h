// Drawing the next token from logits.
#pragma once

#include <cstdint>
#include <vector>

namespace trencadis {

struct SamplingOptions {
  double temperature = 0.8;  // 0: the likeliest token
  int64_t top_k = 0;         // keep only the k likeliest; 0: all
  uint64_t seed = 0;
};

// A token drawn from softmax(logits / temperature), restricted to the top k; ties at the border go to lower ids. `draw`
// counts tokens: (seed, draw) is the only randomness, so all ranks draw the same.
int32_t sample_token(const std::vector<float>& logits, const SamplingOptions& options, int64_t draw);

}  // namespace trencadis
