// What the launches of all attention kernels share: checks of an AttentionShape, arrays of heads, and the choice of the
// bound of the head size that a kernel is compiled for.
#pragma once

#include <type_traits>

#include "runtime/attention_shape.h"
#include "runtime/cuda/argument.h"
#include "runtime/cuda/attention_tiles.cuh"
#include "runtime/cuda/launch.h"
#include "runtime/kernels.h"

namespace trencadis {

inline constexpr int64_t kLargestHead = 128;

inline void check_attention(const char* kernel, const AttentionShape& s) {
  check_attention_shape(kernel, s);
  CHECK(s.D <= kLargestHead, "{}: heads of {} are larger than {}, the most that the GPU's kernels take; use more heads",
        kernel, s.D, kLargestHead);
  CHECK(s.T <= 1 << 30 && s.H <= 1 << 30, "{}: T {} or H {} is above 2^30", kernel, s.T, s.H);
}

template <typename T, typename Void>
auto* head_array(const char* kernel, const char* name, const detail::BasicView<Void>& v, const AttentionShape& s,
                 int64_t heads, int64_t stride) {
  return device_argument<T>(kernel, name, v, heads_elements(s, heads, stride));
}

// The arrays of forward. In backward, o and lse are inputs: Out is const T then.
template <typename Out>
struct AttentionArrays {
  using T = std::remove_const_t<Out>;
  Out* o;
  std::conditional_t<std::is_const_v<Out>, const float, float>* lse;
  const T *q, *k, *v;
};

template <typename T>
struct AttentionGradients {
  T *dq, *dk, *dv;
  const T* d_o;
};

template <typename Out, typename AnyView>
AttentionArrays<Out> attention_arrays(const char* kernel, const AnyView& o, const AnyView& lse, ConstView q,
                                      ConstView k, ConstView v, const AttentionShape& s) {
  using T = std::remove_const_t<Out>;
  return {head_array<T>(kernel, "o", o, s, s.H, s.o_stride),
          device_argument<float>(kernel, "lse", lse, s.B * s.H * s.T),
          head_array<T>(kernel, "q", q, s, s.H, s.q_stride), head_array<T>(kernel, "k", k, s, s.H_kv, s.k_stride),
          head_array<T>(kernel, "v", v, s, s.H_kv, s.v_stride)};
}

// The shape as kernels take it.
template <typename Out>
AttentionSizes attention_sizes(const AttentionArrays<Out>& a, const AttentionShape& s) {
  constexpr int64_t kElements = kGroup<std::remove_const_t<Out>>;
  const bool whole = s.D % kElements == 0 && s.q_stride % kElements == 0 && s.k_stride % kElements == 0 &&
                     s.v_stride % kElements == 0 && s.o_stride % kElements == 0;
  return {.T = static_cast<int>(s.T),
          .H = static_cast<int>(s.H),
          .H_kv = static_cast<int>(s.H_kv),
          .D = static_cast<int>(s.D),
          .q_stride = s.q_stride,
          .k_stride = s.k_stride,
          .v_stride = s.v_stride,
          .o_stride = s.o_stride,
          .scale = s.scale,
          .vectors = whole && aligned16(a.o, a.q, a.k, a.v),
          .masked = s.dropout.probability > 0,
          .dropout = DropoutFactors4(s.dropout)};
}

// Calls f with the smallest bound of {32, 64, 128} that holds heads of size D, as a compile-time constant.
template <typename F>
void dispatch_head(int64_t D, F&& f) {
  if (D <= 32)
    f(std::integral_constant<int, 32>{});
  else if (D <= 64)
    f(std::integral_constant<int, 64>{});
  else
    f(std::integral_constant<int, 128>{});
}

}  // namespace trencadis
