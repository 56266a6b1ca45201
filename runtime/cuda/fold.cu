// Sums and maxima over dimensions: the gradient of an operand that was repeated, and reductions along an axis; one
// kernel for all of them. runtime/cpu/fold.cpp is the readable reference.
//
// A result is folded by kThreads threads. Where what is summed lies side by side (a row), 32 lanes take every 32nd
// element and fold; where results lie side by side (columns), each has one thread, and neighbours read neighbours. A long
// sum is cut into chunks, by shapes alone: their partial results, f32 in scratch memory, are folded by the same kernel.
#include "runtime/cuda/argument.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/loops.cuh"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

constexpr int kBlock = 256;
constexpr int64_t kStepsOfAThread = 64;  // of a chunk, at least
constexpr int64_t kMostThreads = 65536;  // that chunks may ask for

// What is folded, of dy, a and b.
enum class Term { dy, minus_dy, dy_a, dy_b, dy_over_b, minus_dy_a_over_b2 };

template <typename T>
struct Terms {
  const T *dy, *a, *b;
  Term term;
};

template <typename T>
__device__ inline float value(const Terms<T>& t, const int64_t (&at)[3]) {
  const float dy = to_float(t.dy[at[0]]);
  switch (t.term) {
    case Term::dy:
      return dy;
    case Term::minus_dy:
      return -dy;
    case Term::dy_a:
      return dy * to_float(t.a[at[1]]);
    case Term::dy_b:
      return dy * to_float(t.b[at[2]]);
    case Term::dy_over_b:
      return dy / to_float(t.b[at[2]]);
    default: {  // a / b / b: the square of b could overflow
      const float b = to_float(t.b[at[2]]);
      return -dy * (to_float(t.a[at[1]]) / b / b);
    }
  }
}

// a + b, or the larger one; a NaN is the largest.
__device__ inline float combine(bool largest, float a, float b) {
  if (!largest) return a + b;
  return a != a || a > b ? a : b;
}

// out (chunks,K) = (fold over the chunk's part of S) / divisor.
template <int kThreads, typename Out, typename In>
__global__ void __launch_bounds__(kBlock)
    fold_kernel(Out* out, Terms<In> terms, PartedLoop loop, bool largest, float divisor, int64_t K, int64_t S,
                int64_t chunk, int64_t results) {
  const int64_t lane = grid_thread() % kThreads;
  for (int64_t r = grid_thread() / kThreads; r < results; r += grid_threads() / kThreads) {
    const int64_t number = quotient(r, K), k = r - number * K;
    const Places<3> base = places_of(loop.kept, k);
    const int64_t begin = number * chunk, end = begin + chunk < S ? begin + chunk : S;
    float result = largest ? -INFINITY : 0.0f;
    for (int64_t s = begin + lane; s < end; s += kThreads) {
      const Places<3> step = places_of(loop.summed, s);
      const int64_t at[3] = {base.at[0] + step.at[0], base.at[1] + step.at[1], base.at[2] + step.at[2]};
      result = combine(largest, result, value(terms, at));
    }
    if constexpr (kThreads == kWarp)
      result = warp_fold(result, [largest](float a, float b) { return combine(largest, a, b); });
    if (lane == 0) out[r] = from_float<Out>(result / divisor);
  }
}

template <typename Out, typename In>
void launch_fold(cudaStream_t stream, Out* out, const Terms<In>& terms, const PartedLoop& loop, bool rows, bool largest,
                 float divisor, int64_t chunks, int64_t chunk) {
  const int64_t K = loop.kept.count(), S = loop.summed.count(), results = K * chunks;
  if (rows)
    launch(stream, stride_blocks(results * kWarp, kBlock), kBlock, 0, fold_kernel<kWarp, Out, In>, out, terms, loop,
           largest, divisor, K, S, chunk, results);
  else
    launch(stream, stride_blocks(results, kBlock), kBlock, 0, fold_kernel<1, Out, In>, out, terms, loop, largest,
           divisor, K, S, chunk, results);
}

template <typename T>
void fold(cudaStream_t stream, Allocator& scratch, T* out, const Terms<T>& terms, const PartedLoop& loop, bool largest,
          float divisor) {
  const BasicLoop<3>& summed = loop.summed;
  const int64_t K = loop.kept.count(), S = summed.count();
  if (K == 0) return;
  const bool rows = summed.rank > 0 && summed.step[0][summed.rank - 1] == 1 && S >= kWarp / 4;
  const int64_t threads = rows ? kWarp : 1;
  const int64_t wanted = std::max<int64_t>(1, std::min(S / (kStepsOfAThread * threads), kMostThreads / (K * threads)));
  const int64_t chunk = divide_up(S, wanted), chunks = S ? divide_up(S, chunk) : 1;
  if (chunks == 1) return launch_fold(stream, out, terms, loop, rows, largest, divisor, 1, S);
  const Scratch<float> partials(scratch, chunks * K);
  launch_fold(stream, partials.data(), terms, loop, rows, largest, 1.0f, chunks, chunk);
  const PartedLoop over_chunks = part(Axis{1, chunks, K});
  launch_fold<T, float>(stream, out, {partials.data(), nullptr, nullptr, Term::dy}, over_chunks, chunks >= kWarp,
                        largest, divisor, 1, chunks);
}

// dx = dy / divisor, repeated along the axis.
template <typename T>
__global__ void __launch_bounds__(kBlock) spread_kernel(T* dx, const T* dy, Axis axis, float divisor, int64_t n) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const int64_t column = i - quotient(i, axis.inner) * axis.inner;
    const int64_t row = quotient(i, axis.n * axis.inner) * axis.inner + column;
    dx[i] = from_float<T>(to_float(dy[row]) / divisor);
  }
}

using Index = unsigned long long;
struct Where {
  int64_t row;  // of (outer,inner)
  Index j;      // along the axis
};
__device__ inline Where where(const Axis& axis, int64_t i) {
  const int64_t line = quotient(i, axis.inner), outer = quotient(line, axis.n);
  return {outer * axis.inner + i - line * axis.inner, static_cast<Index>(line - outer * axis.n)};
}

// first (rows), all ones before = the first j at which x is the largest. A minimum of integers has no order.
template <typename T>
__global__ void __launch_bounds__(kBlock)
    first_of_largest_kernel(Index* first, const T* x, const T* y, Axis axis, int64_t n) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const Where w = where(axis, i);
    const float v = to_float(x[i]);
    if (v == to_float(y[w.row]) || v != v) atomicMin(first + w.row, w.j);
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    max_backward_kernel(T* dx, const T* dy, const Index* first, Axis axis, int64_t n) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const Where w = where(axis, i);
    dx[i] = w.j == first[w.row] ? dy[w.row] : from_float<T>(0.0f);
  }
}

Term term_of(Binary op, int operand) {
  switch (op) {
    case Binary::add:
      return Term::dy;
    case Binary::sub:
      return operand == 0 ? Term::dy : Term::minus_dy;
    case Binary::mul:
      return operand == 0 ? Term::dy_b : Term::dy_a;
    default:
      return operand == 0 ? Term::dy_over_b : Term::minus_dy_a_over_b2;
  }
}

}  // namespace

void CudaKernels::binary_backward(View d, ConstView dy, ConstView a, ConstView b, Binary op, int operand,
                                  const Loop& loop) {
  const char* kernel = "binary_backward";
  const PartedLoop parted = part(loop, operand);
  const Term term = term_of(op, operand);
  const bool reads_a = term == Term::dy_a || term == Term::minus_dy_a_over_b2;
  const bool reads_b = op == Binary::div || term == Term::dy_b;
  dispatch_float(kernel, dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>(kernel, "d", d, parted.kept.count());
    const Terms<T> terms = {device_argument<T>(kernel, "dy", dy, loop.count()),
                            reads_a ? device_argument<T>(kernel, "a", a, loop.span(0)) : nullptr,
                            reads_b ? device_argument<T>(kernel, "b", b, loop.span(1)) : nullptr, term};
    fold<T>(stream_, scratch_, out, terms, parted, false, 1.0f);
  });
}

void CudaKernels::reduce(View y, ConstView x, Reduce op, const Axis& axis) {
  CHECK(op != Reduce::max || axis.n > 0 || axis.rows() == 0, "reduce: the largest of no elements");
  dispatch_float("reduce", x.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>("reduce", "y", y, axis.rows());
    const Terms<T> terms = {device_argument<T>("reduce", "x", x, axis.count()), nullptr, nullptr, Term::dy};
    fold<T>(stream_, scratch_, out, terms, part(axis), op == Reduce::max,
            op == Reduce::mean ? static_cast<float>(axis.n) : 1.0f);
  });
}

void CudaKernels::reduce_backward(View dx, ConstView dy, ConstView x, ConstView y, Reduce op, const Axis& axis) {
  const char* kernel = "reduce_backward";
  const int64_t n = axis.count();
  dispatch_float(kernel, dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = device_argument<T>(kernel, "dx", dx, n);
    const T* in = device_argument<T>(kernel, "dy", dy, axis.rows());
    const unsigned blocks = stride_blocks(n, kBlock);
    if (op != Reduce::max) {
      launch(stream_, blocks, kBlock, 0, spread_kernel<T>, out, in, axis,
             op == Reduce::mean ? static_cast<float>(axis.n) : 1.0f, n);
      return;
    }
    const T* values = device_argument<T>(kernel, "x", x, n);
    const T* largest = device_argument<T>(kernel, "y", y, axis.rows());
    if (n == 0) return;
    const Scratch<Index> first(scratch_, axis.rows());
    CUDA_CHECK(cudaMemsetAsync(first.data(), 0xff, static_cast<size_t>(axis.rows()) * sizeof(Index), stream_));
    launch(stream_, blocks, kBlock, 0, first_of_largest_kernel<T>, first.data(), values, largest, axis, n);
    launch(stream_, blocks, kBlock, 0, max_backward_kernel<T>, out, in, first.data(), axis, n);
  });
}

}  // namespace trencadis
