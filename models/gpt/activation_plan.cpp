#include "models/gpt/activation_plan.h"

#include <algorithm>

namespace trencadis {

int64_t activation_bytes(const GPTConfig& config, int64_t B, int64_t T) {
  const int64_t C = config.n_embd, H = config.n_head, V = config.vocab_size, L = config.n_layer;
  const int64_t block = 16 * C + 4 + H;                              // kept per row and block
  const int64_t kept = config.activation_checkpointing ? C : block;  // from forward to backward
  const int64_t inputs = 2;                                          // ids and targets
  const int64_t head = C + C + 2 + V + 1;                            // input, norm, its numbers, logits, log-sum-exp
  const int64_t in_head = L * kept + head + C;                       // and the gradient behind the head's product
  const int64_t recomputed = config.activation_checkpointing ? block : 0;  // of the block whose backward runs
  // In a block's backward: the gradients of its output, of the hidden layer (4C) and of the layer before it.
  const int64_t in_block = L * kept + recomputed + C + 4 * C + C;
  return 4 * B * T * (inputs + std::max(in_head, in_block));
}

}  // namespace trencadis
