// Softmax, and its logarithm, along one axis of x (outer,n,inner), and their backward passes.
//
// Along the last axis (inner = 1) the sixteen lanes lie along the row, and are folded; along any other they are sixteen
// rows side by side. The largest of a row is subtracted first, so that exp cannot overflow. Sums are formed in blocks of
// kBlock steps: a row may have as many as a vocabulary.
#include <cmath>

#include "runtime/cpu/argument.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/walk.h"

namespace trencadis {

using vec::F32;

namespace {

constexpr int64_t kBlock = 64;
constexpr float kNone = -std::numeric_limits<float>::infinity();

// One or sixteen rows: element j of them is sixteen lanes at place(j), of which `lanes` count; `steps` of them.
struct Rows {
  int64_t first, stride, steps, n;
  bool folded;  // one row

  int64_t place(int64_t j) const { return first + j * stride; }
  int64_t lanes(int64_t j, int64_t side_by_side) const {
    return folded ? std::min(vec::kLanes, n - j * vec::kLanes) : side_by_side;
  }
};

// body(rows, lanes side by side) for all rows of an array, on the pool.
template <typename Body>
void for_rows(ThreadPool& pool, const Axis& axis, const Body& body) {
  const bool folded = axis.inner == 1;
  const int64_t groups = (axis.inner + vec::kLanes - 1) / vec::kLanes;  // in an outer one
  const int64_t work = axis.n * (folded ? 1 : vec::kLanes);
  for_ranges(pool, axis.outer * groups, std::max<int64_t>(1, kGrain / 4 / std::max<int64_t>(1, work)),
             [&](int64_t begin, int64_t end) {
               for (int64_t g = begin; g < end; ++g) {
                 const int64_t column = g % groups * vec::kLanes;
                 const Rows rows = {g / groups * axis.n * axis.inner + column, folded ? vec::kLanes : axis.inner,
                                    folded ? (axis.n + vec::kLanes - 1) / vec::kLanes : axis.n, axis.n, folded};
                 body(rows, std::min(vec::kLanes, axis.inner - column));
               }
             });
}

// The sum over the steps of value(place, lanes); lanes that do not count must be 0 in it. In each lane, the row's.
template <typename Value>
[[gnu::always_inline]] inline F32 sum_rows(const Rows& rows, int64_t side_by_side, const Value& value) {
  F32 total = 0.0f;
  for (int64_t begin = 0; begin < rows.steps; begin += kBlock) {
    F32 part = 0.0f;
    for (int64_t j = begin; j < std::min(rows.steps, begin + kBlock); ++j)
      part += value(rows.place(j), rows.lanes(j, side_by_side));
    total += part;
  }
  return rows.folded ? F32(vec::sum(total)) : total;
}

// y(place) = value(place, lanes) for every step.
template <typename Value>
[[gnu::always_inline]] inline void store_rows(float* y, const Rows& rows, int64_t side_by_side, const Value& value) {
  for (int64_t j = 0; j < rows.steps; ++j) {
    const int64_t lanes = rows.lanes(j, side_by_side);
    vec::store(y + rows.place(j), value(rows.place(j), lanes), lanes);
  }
}

}  // namespace

void CpuKernels::softmax(View y, ConstView x, bool logarithm, const Axis& axis) {
  float* out = argument<float>("softmax", "y", y, axis.count());
  const float* in = argument<float>("softmax", "x", x, axis.count());
  for_rows(pool_, axis, [&](const Rows& rows, int64_t side) {
    F32 largest = kNone;
    for (int64_t j = 0; j < rows.steps; ++j)
      largest = vec::max(largest, vec::load(in + rows.place(j), rows.lanes(j, side), kNone));
    if (rows.folded) largest = vec::max_of(largest);
    const F32 sum = sum_rows(rows, side, [&](int64_t at, int64_t lanes) {
      return vec::exp(vec::load(in + at, lanes, kNone) - largest);  // lanes that do not count are exp(-inf) = 0
    });
    if (logarithm) {
      const F32 log_sum = vec::log(sum);
      store_rows(out, rows, side,
                 [&](int64_t at, int64_t lanes) { return vec::load(in + at, lanes) - largest - log_sum; });
    } else {
      store_rows(out, rows, side,
                 [&](int64_t at, int64_t lanes) { return vec::exp(vec::load(in + at, lanes) - largest) / sum; });
    }
  });
}

void CpuKernels::softmax_backward(View dx, ConstView dy, ConstView y, bool logarithm, const Axis& axis) {
  const char* kernel = "softmax_backward";
  float* out = argument<float>(kernel, "dx", dx, axis.count());
  const float* d = argument<float>(kernel, "dy", dy, axis.count());
  const float* result = argument<float>(kernel, "y", y, axis.count());
  for_rows(pool_, axis, [&](const Rows& rows, int64_t side) {
    const F32 sum = sum_rows(rows, side, [&](int64_t at, int64_t lanes) {
      const F32 v = vec::load(d + at, lanes);
      return logarithm ? v : v * vec::load(result + at, lanes);
    });
    store_rows(out, rows, side, [&](int64_t at, int64_t lanes) {
      const F32 v = vec::load(d + at, lanes), p = vec::load(result + at, lanes);
      return logarithm ? vec::fma(-vec::exp(p), sum, v) : p * (v - sum);
    });
  });
}

}  // namespace trencadis
