// One attention problem for the tests of CUDA's kernels: inputs in a fused buffer, and the calls of a kernel on it.
#pragma once

#include "cuda_kernel_test.h"

namespace trencadis::test {

// q, k and v lie in one buffer (B,T,q|k|v) as a fused projection leaves them; its gradient has the same layout.
struct AttentionProblem {
  AttentionShape s;
  int64_t row, k_at, v_at;
  std::vector<float> qkv, d_o;

  AttentionProblem(int64_t B, int64_t T, int64_t H, int64_t H_kv, int64_t D, float dropout = 0) {
    row = (H + 2 * H_kv) * D;
    k_at = H * D;
    v_at = (H + H_kv) * D;
    s = {.B = B,
         .T = T,
         .H = H,
         .H_kv = H_kv,
         .D = D,
         .q_stride = row,
         .k_stride = row,
         .v_stride = row,
         .o_stride = H * D,
         .scale = 1 / std::sqrt(static_cast<float>(D)),
         .dropout = {}};
    s.dropout = {.probability = dropout, .seed = 1, .step = 2, .site = 3, .first_sample = 40};
    qkv = random_floats(B * T * row, 1, 2);
    d_o = random_floats(B * T * H * D, 2);
  }
  int64_t outputs() const { return s.B * s.T * s.H * s.D; }
  int64_t rows() const { return s.B * s.H * s.T; }
};

// The part of a view from `from` on.
template <typename AnyView>
AnyView rest(const AnyView& view, int64_t from) {
  return view.slice(from, view.size - from);
}

// A call of attention() or of one of its rungs: outputs o, lse. attend(arrays, o, lse, q, k, v).
template <typename Attend>
auto forward_call(const AttentionProblem& p, Attend attend) {
  return [&p, attend](auto& arrays) {
    const View o = arrays.values_out(p.outputs()), lse = arrays.out(p.rows()), qkv = arrays.values_in(p.qkv);
    attend(arrays, o, lse, qkv, rest(qkv, p.k_at), rest(qkv, p.v_at));
  };
}

}  // namespace trencadis::test
