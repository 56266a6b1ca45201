// The general operations on one element at a time: functions of one argument and their derivatives, sums to quotients
// of two arrays that broadcast, and copies from any steps to any other. A model's own operations are made of these and
// of fold.cpp and softmax.cpp.
//
// One mechanism: a loop per kind (map_elements; binary), and one line per operation. The operation is chosen outside of
// the loop. Each element is computed for itself, so threads are free to take any part.
#include "runtime/cpu/argument.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/gelu.h"
#include "runtime/cpu/walk.h"

namespace trencadis {

using vec::F32;

namespace {

constexpr int64_t kTile = 64;  // rows and columns of a tile that is copied to its transpose

// y_i = f(x_i...), sixteen at a time.
template <typename F, typename... X>
void map_elements(ThreadPool& pool, float* y, int64_t n, const F& f, const X*... x) {
  for_ranges(pool, n, kGrain, [&](int64_t first, int64_t last) {
    vec::for_lanes(last - first, [&](int64_t i, int64_t lanes) {
      vec::store(y + first + i, f(vec::load(x + first + i, lanes)...), lanes);
    });
  });
}

[[gnu::always_inline]] inline F32 sigmoid(F32 x) { return F32(1.0f) / (vec::exp(-x) + 1.0f); }

}  // namespace

void CpuKernels::add(View y, ConstView x) { add(y, y, x); }

void CpuKernels::add(View y, ConstView a, ConstView b) {
  const int64_t n = b.size;
  float* out = argument<float>("add", "y", y, n);
  const float* left = argument<float>("add", "a", a, n);
  const float* right = argument<float>("add", "b", b, n);
  map_elements(
      pool_, out, n, [](F32 l, F32 r) { return l + r; }, left, right);
}

void CpuKernels::unary(View y, ConstView x, Unary op) {
  const int64_t n = x.size;
  float* out = argument<float>("unary", "y", y, n);
  const float* in = argument<float>("unary", "x", x, n);
  const auto map = [&](const auto& f) { map_elements(pool_, out, n, f, in); };
  switch (op) {
    case Unary::exp:
      return map([](F32 v) { return vec::exp(v); });
    case Unary::log:
      return map([](F32 v) { return vec::log(v); });
    case Unary::sqrt:
      return map([](F32 v) { return vec::sqrt(v); });
    case Unary::tanh:
      return map([](F32 v) { return vec::tanh(v); });
    case Unary::sigmoid:
      return map([](F32 v) { return sigmoid(v); });
    case Unary::relu:
      return map([](F32 v) { return vec::max(0.0f, v); });  // in this order NaN stays NaN
    case Unary::silu:
      return map([](F32 v) { return v / (vec::exp(-v) + 1.0f); });
    case Unary::gelu:
      return map([](F32 v) { return vec::gelu(v); });
  }
}

// s: what was saved, the result y or the argument x (derivative_reads_result).
void CpuKernels::unary_backward(View dx, ConstView dy, ConstView saved, Unary op) {
  const int64_t n = dy.size;
  float* out = argument<float>("unary_backward", "dx", dx, n);
  const float* in = argument<float>("unary_backward", "dy", dy, n);
  const float* kept = argument<float>("unary_backward", "saved", saved, n);
  const auto map = [&](const auto& f) { map_elements(pool_, out, n, f, in, kept); };
  switch (op) {
    case Unary::exp:
      return map([](F32 d, F32 y) { return d * y; });
    case Unary::log:
      return map([](F32 d, F32 x) { return d / x; });
    case Unary::sqrt:
      return map([](F32 d, F32 y) { return d / (y + y); });
    case Unary::tanh:
      return map([](F32 d, F32 y) { return d * vec::fma(-y, y, 1.0f); });
    case Unary::sigmoid:
      return map([](F32 d, F32 y) { return d * (y * (F32(1.0f) - y)); });
    case Unary::relu:
      return map([](F32 d, F32 y) { return vec::select(y > F32(0.0f), d, F32(0.0f)); });
    case Unary::silu:
      return map([](F32 d, F32 x) {
        const F32 s = sigmoid(x);
        return d * vec::fma(x * s, F32(1.0f) - s, s);
      });
    case Unary::gelu:
      return map([](F32 d, F32 x) { return d * vec::gelu_derivative(x); });
  }
}

void CpuKernels::binary(View y, ConstView a, ConstView b, Binary op, const Loop& loop) {
  const int64_t n = loop.count();
  float* out = argument<float>("binary", "y", y, n);
  const float* left = argument<float>("binary", "a", a, loop.span(0));
  const float* right = argument<float>("binary", "b", b, loop.span(1));
  const auto map = [&](const auto& f) {
    for_ranges(pool_, n, kGrain, [&](int64_t begin, int64_t end) {
      for_runs(loop, begin, end, [&](int64_t first, int64_t length, const Run<2>& run) {
        vec::for_lanes(length, [&](int64_t i, int64_t lanes) {
          const F32 l = load_steps(left + run.at[0] + i * run.step[0], run.step[0], lanes);
          const F32 r = load_steps(right + run.at[1] + i * run.step[1], run.step[1], lanes);
          vec::store(out + first + i, f(l, r), lanes);
        });
      });
    });
  };
  switch (op) {
    case Binary::add:
      return map([](F32 l, F32 r) { return l + r; });
    case Binary::sub:
      return map([](F32 l, F32 r) { return l - r; });
    case Binary::mul:
      return map([](F32 l, F32 r) { return l * r; });
    case Binary::div:
      return map([](F32 l, F32 r) { return l / r; });
  }
}

// Where y runs along one dimension and x along another, a tile of both is copied at a time, so that neither is read or
// written a cache line per element.
void CpuKernels::copy_strided(View y, ConstView x, const Loop& loop) {
  float* out = argument<float>("copy_strided", "y", y, loop.span(0));
  const float* in = argument<float>("copy_strided", "x", x, loop.span(1));
  const int inner = loop.rank - 1;
  int along_x = inner;  // the dimension in which x is dense
  for (int d = 0; d < inner; ++d)
    if (loop.step[1][d] == 1 && loop.step[1][inner] != 1) along_x = d;
  if (along_x == inner) {
    for_ranges(pool_, loop.count(), kGrain, [&](int64_t begin, int64_t end) {
      for_runs(loop, begin, end, [&](int64_t, int64_t length, const Run<2>& run) {
        float* to = out + run.at[0];
        const float* from = in + run.at[1];
        if (run.step[0] == 1 && run.step[1] == 1)
          std::copy_n(from, length, to);
        else
          for (int64_t i = 0; i < length; ++i) to[i * run.step[0]] = from[i * run.step[1]];
      });
    });
    return;
  }
  const int64_t rows = loop.size[along_x], columns = loop.size[inner];
  const int64_t y_row = loop.step[0][along_x], y_column = loop.step[0][inner], x_column = loop.step[1][inner];
  Loop tiles;  // the other dimensions, then the two as tiles
  for (int d = 0; d < inner; ++d)
    if (d != along_x) tiles.push(loop.size[d], {loop.step[0][d], loop.step[1][d]});
  const int64_t down = (rows + kTile - 1) / kTile, across = (columns + kTile - 1) / kTile;
  for_ranges(pool_, tiles.count() * down * across, kGrain / (kTile * kTile), [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t matrix = tile / (down * across), r0 = tile / across % down * kTile, c0 = tile % across * kTile;
      for_runs(tiles, matrix, matrix + 1, [&](int64_t, int64_t, const Run<2>& run) {
        for (int64_t r = r0; r < std::min(rows, r0 + kTile); ++r)
          for (int64_t c = c0; c < std::min(columns, c0 + kTile); ++c)
            out[run.at[0] + r * y_row + c * y_column] = in[run.at[1] + r + c * x_column];
      });
    }
  });
}

}  // namespace trencadis
