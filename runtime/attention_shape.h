// What every device checks of an AttentionShape, and how long an array of heads is.
#pragma once

#include "runtime/check.h"
#include "runtime/kernels.h"

namespace trencadis {

// Throws Error naming the kernel and the sizes that do not go together.
inline void check_attention_shape(const char* kernel, const AttentionShape& s) {
  CHECK(s.B >= 0 && s.T >= 0 && s.H > 0 && s.H_kv > 0 && s.D > 0, "{}: B {}, T {}, H {}, H_kv {}, D {}", kernel, s.B,
        s.T, s.H, s.H_kv, s.D);
  CHECK(s.H % s.H_kv == 0, "{}: {} query heads cannot share {} key/value heads; H must be a multiple of H_kv", kernel,
        s.H, s.H_kv);
  const int64_t q_row = s.H * s.D, kv_row = s.H_kv * s.D;
  CHECK(s.q_stride >= q_row && s.o_stride >= q_row && s.k_stride >= kv_row && s.v_stride >= kv_row,
        "{}: strides q {}, k {}, v {}, o {} are shorter than {} heads of {} (q, o) or {} heads (k, v)", kernel,
        s.q_stride, s.k_stride, s.v_stride, s.o_stride, s.H, s.D, s.H_kv);
  CHECK(s.scale > 0, "{}: scale {} is not positive", kernel, s.scale);  // a masked score stays -inf when scaled
  CHECK(s.dropout.probability >= 0 && s.dropout.probability < 1, "{}: dropout probability {} is not in [0, 1)", kernel,
        s.dropout.probability);
}

// Elements of the array of `heads` heads at every token, `stride` elements from token to token: its last row may end
// with its heads.
inline int64_t heads_elements(const AttentionShape& s, int64_t heads, int64_t stride) {
  const int64_t tokens = s.B * s.T;
  return tokens ? (tokens - 1) * stride + heads * s.D : 0;
}

}  // namespace trencadis
