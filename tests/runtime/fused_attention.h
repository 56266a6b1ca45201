// One attention problem, for the tests of every device's kernels: sizes, and inputs in a fused buffer.
#pragma once

#include <cmath>
#include <vector>

#include "runtime/kernel_test.h"
#include "runtime/kernels.h"

namespace trencadis::test {

// q, k and v lie in one buffer (B,T,q|k|v) as a fused projection leaves them; its gradient has the same layout.
struct FusedAttention {
  AttentionShape s;
  int64_t row, k_at, v_at;
  std::vector<float> qkv, d_o;

  // range: of the inputs.
  FusedAttention(int64_t B, int64_t T, int64_t H, int64_t H_kv, int64_t D, float dropout = 0, float range = 1) {
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
    qkv = random_floats(B * T * row, 1, range);
    d_o = random_floats(B * T * H * D, 2);
  }

  int64_t outputs() const { return s.B * s.T * s.H * s.D; }
  int64_t rows() const { return s.B * s.H * s.T; }
  double at(int64_t b, int64_t t, int64_t offset) const {
    return qkv[static_cast<size_t>((b * s.T + t) * row + offset)];
  }
};

// The part of a view from `from` on.
template <typename AnyView>
AnyView rest(const AnyView& view, int64_t from) {
  return view.slice(from, view.size - from);
}

}  // namespace trencadis::test
