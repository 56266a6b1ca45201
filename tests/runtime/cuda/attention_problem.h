// Attention problems for the tests of CUDA's kernels, and the calls of a kernel on them.
#pragma once

#include "cuda_kernel_test.h"
#include "runtime/fused_attention.h"

namespace trencadis::test {

struct AttentionProblem : FusedAttention {
  AttentionProblem(int64_t B, int64_t T, int64_t H, int64_t H_kv, int64_t D, float dropout = 0)
      : FusedAttention(B, T, H, H_kv, D, dropout, /*range=*/2) {}
};

// A call of attention() or of one of its rungs: outputs o, lse. attend(arrays, o, lse, q, k, v).
template <typename Attend>
auto forward_call(const AttentionProblem& p, Attend attend) {
  return [&p, attend](auto& arrays) {
    const View o = arrays.values_out(p.outputs()), lse = arrays.out(p.rows()), qkv = arrays.values_in(p.qkv);
    attend(arrays, o, lse, qkv, rest(qkv, p.k_at), rest(qkv, p.v_at));
  };
}

}  // namespace trencadis::test
