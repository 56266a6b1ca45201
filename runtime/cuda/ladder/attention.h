// The ladder of causal attention, forward: one formula (runtime/kernels.h), four kernels, each with one more idea.
//
//   attention_naive        all scores (B,H,T,T) in global memory: made, normalised, multiplied, by three kernels
//   attention_tiled        + flash: tiles of keys and values in shared memory, a running maximum and sum for each row
//   attention_fast         + 4 x 4 scores and a row of sums in registers, 16 bytes a load: what the backend runs
//   attention_tensor_core  + mma.sync for both products; probabilities pass between them in registers (bf16 only)
//
// o, q, k, v are f32 or all bf16; lse is f32. `scratch` serves the naive rung. Errors: CHECK on types, sizes and shape.
#pragma once

#include <cuda_runtime_api.h>

#include "runtime/allocator.h"
#include "runtime/kernels.h"

namespace trencadis {

using Attention = void(cudaStream_t stream, Allocator& scratch, View o, View lse, ConstView q, ConstView k, ConstView v,
                       const AttentionShape& shape);

Attention attention_naive, attention_tiled, attention_fast, attention_tensor_core;

}  // namespace trencadis
