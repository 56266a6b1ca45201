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
#pragma once

#include "models/gpt/gpt.h"

namespace trencadis {

// Peak bytes of the activations of one micro-batch of B sequences of T tokens, f32.
int64_t activation_bytes(const GPTConfig& config, int64_t B, int64_t T);

}  // namespace trencadis
