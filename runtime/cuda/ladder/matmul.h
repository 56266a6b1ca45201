// The ladder of matrix products: one product, four kernels, each with one more idea. What the backend runs is cuBLAS
// (matmul.cu one folder up); here is what such a library does, small enough to read.
//
//   c (M,N) = a (M,K) b^T, b (N,K)      the product of a linear layer: both operands run along K in memory
//
//   matmul_naive        a thread a result: every operand comes from global memory, M + N times over
//   matmul_tiled        + tiles in shared memory: a block reads each operand once for 32 results in a row
//   matmul_fast         + 8 x 8 results in registers, 16 bytes a load, the next tile on its way while this one is used
//   matmul_tensor_core  + mma.sync: a warp multiplies 16 x 16 by 16 x 8 in one instruction (bf16 only)
//
// c, a and b are f32 or all bf16; sums are f32, in ascending order of K. Any M, N and K: tiles are filled with zeros at
// the edges. Errors: CHECK on types and sizes.
#pragma once

#include <cuda_runtime_api.h>

#include "runtime/view.h"

namespace trencadis {

using Matmul = void(cudaStream_t stream, View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K);

Matmul matmul_naive, matmul_tiled, matmul_fast, matmul_tensor_core;

}  // namespace trencadis
