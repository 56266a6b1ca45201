// Activation memory of a GPT, from its configuration alone.
//
// With N = B T rows, per block (elements): what its backward needs is
//   x, norm 1, q k v, attention output, x + attention, norm 2, MLP before and behind its GELU
//     =  C (1+1+3+1+1+1+4+4)  =  16 C,
//   two numbers per row and norm (4), one log-sum-exp per row and head (H);
//   dropout keeps nothing (its masks are counters).
// With checkpointing a block keeps its input (C), and one block at a time has the rest. The head keeps its input, its
// norm, the logits (V) and some numbers per row. The peak is the larger of two moments: in the head's backward, and in
// the last block's.
#include <algorithm>

#include "models/gpt/gpt.h"

namespace trencadis {

int64_t GPT::activation_bytes(int64_t B, int64_t T, bool checkpointing) const {
  const int64_t C = config().n_embd, H = config().n_head, V = config().vocab_size, L = config().n_layer;
  const int64_t block = 16 * C + 4 + H;                  // kept per row and block
  const int64_t kept = checkpointing ? C : block;        // from forward to backward
  const int64_t inputs = 2;                              // ids and targets
  const int64_t head = C + C + 2 + V + 1;                // input, norm, its numbers, logits, log-sum-exp
  const int64_t in_head = L * kept + head + C;           // and the gradient behind the head's product
  const int64_t recomputed = checkpointing ? block : 0;  // of the block whose backward runs
  // In a block's backward: the gradients of its output, of the hidden layer (4C) and of the layer before it.
  const int64_t in_block = L * kept + recomputed + C + 4 * C + C;
  return 4 * B * T * (inputs + std::max(in_head, in_block));
}

}  // namespace trencadis
