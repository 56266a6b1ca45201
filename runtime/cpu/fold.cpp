// Sums and maxima over dimensions: the gradient of an operand that was repeated (binary_backward), and reductions along
// an axis. Both are one loop parted in two (runtime/loop.h): the dimensions that the result has, and those it has not.
//
// Where the innermost dimension is summed, a result is a row: sixteen partial sums side by side, folded at the end.
// Where it is kept, results are columns: row after row is added to them. Either way what is summed is cut into chunks
// by its length alone, and their partial results are added in order; that also bounds the rounding error of long sums.
#include <memory>

#include "runtime/cpu/argument.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/walk.h"

namespace trencadis {

using vec::F32;

namespace {

// Elements of a row, or rows of a column, that a chunk has at least.
constexpr int64_t kRowChunk = 4096, kColumnChunk = 32;

struct Sum {
  static constexpr float kStart = 0;
  [[gnu::always_inline]] static F32 of(F32 a, F32 b) { return a + b; }
  static float lanes(F32 x) { return vec::sum(x); }
};
// A NaN stays: the largest of anything and NaN is NaN.
struct Max {
  static constexpr float kStart = -std::numeric_limits<float>::infinity();
  [[gnu::always_inline]] static F32 of(F32 a, F32 b) { return vec::select(vec::is_nan(a), a, vec::max(a, b)); }
  static float lanes(F32 x) {
    F32 largest = x[0];
    for (int64_t i = 1; i < vec::kLanes; ++i) largest = of(largest, F32(x[i]));
    return largest[0];
  }
};

// Sixteen places in the three arrays of a parted loop.
struct Places {
  int64_t at[3], step[3], lanes;

  [[gnu::always_inline]] F32 load(const float* array, int k) const { return load_steps(array + at[k], step[k], lanes); }
};
[[gnu::always_inline]] inline Places places(const Run<3>& run, const Run<3>& base, int64_t i, int64_t lanes) {
  Places p;
  for (int k = 0; k < 3; ++k) {
    p.at[k] = base.at[k] + run.at[k] + i * run.step[k];
    p.step[k] = run.step[k];
  }
  p.lanes = lanes;
  return p;
}

// out_k = (F over s of value(k, s)) / divisor for every k of loop.kept, s of loop.summed.
template <typename F, typename Value>
void fold(ThreadPool& pool, float* out, const PartedLoop& loop, float divisor, const Value& value) {
  const BasicLoop<3>&kept = loop.kept, &summed = loop.summed;
  const int64_t K = kept.count(), S = summed.count();
  const bool rows = summed.rank > 0 && summed.step[0][summed.rank - 1] == 1;
  const Chunks chunks(S, rows ? kRowChunk : kColumnChunk);
  const Chunks blocks(K, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, chunks.size)));
  const auto partials = std::make_unique_for_overwrite<float[]>(chunks.count > 1 ? chunks.count * K : 0);

  pool.run(chunks.count * blocks.count, [&](int64_t task) {
    const int64_t chunk = task / blocks.count, block = task % blocks.count;
    const int64_t s0 = chunks.begin(chunk), s1 = chunks.end(chunk, S);
    const int64_t k0 = blocks.begin(block), k1 = blocks.end(block, K);
    float* to = chunks.count > 1 ? partials.get() + chunk * K : out;
    if (rows) {
      for_runs(kept, k0, k1, [&](int64_t first, int64_t length, Run<3> base) {
        for (int64_t i = 0; i < length; ++i) {
          F32 result = F::kStart;
          for_runs(summed, s0, s1, [&](int64_t, int64_t count, const Run<3>& run) {
            vec::for_lanes(count, [&](int64_t s, int64_t lanes) {
              F32 v = value(places(run, base, s, lanes));
              if (lanes < vec::kLanes)
                v = vec::select(vec::lane_numbers() < vec::I32(static_cast<int>(lanes)), v, F32(F::kStart));
              result = F::of(result, v);
            });
          });
          to[first + i] = F::lanes(result);
          for (int k = 0; k < 3; ++k) base.at[k] += base.step[k];
        }
      });
    } else {
      for_runs(summed, s0, s1, [&](int64_t start, int64_t count, Run<3> base) {
        for (int64_t s = start; s < start + count; ++s) {
          for_runs(kept, k0, k1, [&](int64_t first, int64_t length, const Run<3>& run) {
            vec::for_lanes(length, [&](int64_t i, int64_t lanes) {
              F32 v = value(places(run, base, i, lanes));
              if (s > s0) v = F::of(vec::load(to + first + i, lanes), v);
              vec::store(to + first + i, v, lanes);
            });
          });
          for (int k = 0; k < 3; ++k) base.at[k] += base.step[k];
        }
      });
    }
  });

  if (chunks.count == 1 && divisor == 1) return;
  for_ranges(pool, K, kGrain, [&](int64_t begin, int64_t end) {
    vec::for_lanes(end - begin, [&](int64_t i, int64_t lanes) {
      const int64_t k = begin + i;
      F32 result = chunks.count == 1 ? vec::load(out + k, lanes) : F32(F::kStart);
      for (int64_t chunk = 0; chunk < chunks.count && chunks.count > 1; ++chunk)
        result = F::of(result, vec::load(partials.get() + chunk * K + k, lanes));
      vec::store(out + k, result / divisor, lanes);
    });
  });
}

}  // namespace

void CpuKernels::binary_backward(View d, ConstView dy, ConstView a, ConstView b, Binary op, int operand,
                                 const Loop& loop) {
  const char* kernel = "binary_backward";
  const PartedLoop parted = part(loop, operand);
  float* out = argument<float>(kernel, "d", d, parted.kept.count());
  const float* in = argument<float>(kernel, "dy", dy, loop.count());
  const bool quotient = op == Binary::div, product = op == Binary::mul, left = operand == 0;
  const bool reads_a = (quotient || product) && !left, reads_b = quotient || (product && left);
  const float* l = reads_a ? argument<float>(kernel, "a", a, loop.span(0)) : nullptr;
  const float* r = reads_b ? argument<float>(kernel, "b", b, loop.span(1)) : nullptr;
  const auto sum = [&](const auto& value) { fold<Sum>(pool_, out, parted, 1, value); };
  switch (op) {
    case Binary::add:
      return sum([&](const Places& p) { return p.load(in, 0); });
    case Binary::sub:
      if (left) return sum([&](const Places& p) { return p.load(in, 0); });
      return sum([&](const Places& p) { return -p.load(in, 0); });
    case Binary::mul:
      if (left) return sum([&](const Places& p) { return p.load(in, 0) * p.load(r, 2); });
      return sum([&](const Places& p) { return p.load(in, 0) * p.load(l, 1); });
    case Binary::div:
      if (left) return sum([&](const Places& p) { return p.load(in, 0) / p.load(r, 2); });
      return sum([&](const Places& p) {  // a / b / b: the square of b could overflow
        const F32 divisor = p.load(r, 2);
        return -p.load(in, 0) * (p.load(l, 1) / divisor / divisor);
      });
  }
}

void CpuKernels::reduce(View y, ConstView x, Reduce op, const Axis& axis) {
  float* out = argument<float>("reduce", "y", y, axis.rows());
  const float* in = argument<float>("reduce", "x", x, axis.count());
  const PartedLoop loop = part(axis);
  const auto value = [&](const Places& p) { return p.load(in, 0); };
  if (op == Reduce::max) {
    CHECK(axis.n > 0 || axis.rows() == 0, "reduce: the largest of no elements");
    return fold<Max>(pool_, out, loop, 1, value);
  }
  fold<Sum>(pool_, out, loop, op == Reduce::mean ? static_cast<float>(axis.n) : 1.0f, value);
}

void CpuKernels::reduce_backward(View dx, ConstView dy, ConstView x, ConstView y, Reduce op, const Axis& axis) {
  const char* kernel = "reduce_backward";
  const int64_t n = axis.n, inner = axis.inner;
  float* out = argument<float>(kernel, "dx", dx, axis.count());
  const float* in = argument<float>(kernel, "dy", dy, axis.rows());
  if (op != Reduce::max) {
    Loop loop;  // dy is repeated along n; the divisor everywhere
    loop.push(axis.outer, {inner, 0});
    loop.push(n, {0, 0});
    loop.push(inner, {1, 0});
    const float divisor = op == Reduce::mean ? static_cast<float>(n) : 1.0f;
    return binary(dx, dy, ConstView(&divisor, 1), Binary::div, loop);
  }
  const float* values = argument<float>(kernel, "x", x, axis.count());
  const float* largest = argument<float>(kernel, "y", y, axis.rows());
  for_ranges(pool_, axis.rows(), std::max<int64_t>(1, kGrain / std::max<int64_t>(1, n)),
             [&](int64_t begin, int64_t end) {
               for (int64_t row = begin; row < end; ++row) {
                 const int64_t first = row / inner * n * inner + row % inner;
                 bool found = false;
                 for (int64_t j = 0; j < n; ++j) {
                   const float v = values[first + j * inner];
                   const bool here = !found && (v == largest[row] || std::isnan(v));
                   out[first + j * inner] = here ? in[row] : 0.0f;
                   found = found || here;
                 }
               }
             });
}

}  // namespace trencadis
