// AdamW and SGD on flat ranges of parameters, one pass over memory each.
//
// Masters, moments and arithmetic are f32, the parameter and its gradient each f32 or bf16. The formula is the CPU's,
// operation by operation, with fused products where it says fma and nowhere else: for f32 the bits are the CPU's.
#include <cmath>

#include "runtime/cuda/argument.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

constexpr int kBlock = 256;
constexpr int kQuad = 4;  // elements of a thread: a group of f32, half a group of bf16

struct Quad {
  float v[kQuad];
};

// p[0..4), of which the first `left` exist; p is a multiple of 4 elements when kAligned.
template <bool kAligned, typename T>
__device__ inline Quad load_quad(const T* p, int64_t left) {
  struct alignas(kQuad * sizeof(T)) Words {
    T v[kQuad];
  };
  Quad quad;
  if (kAligned && left >= kQuad) {
    const Words words = *reinterpret_cast<const Words*>(p);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) quad.v[i] = to_float(words.v[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) quad.v[i] = i < left ? to_float(p[i]) : 0.0f;
  }
  return quad;
}

template <bool kAligned, typename T>
__device__ inline void store_quad(T* p, const Quad& quad, int64_t left) {
  struct alignas(kQuad * sizeof(T)) Words {
    T v[kQuad];
  };
  if (kAligned && left >= kQuad) {
    Words words;
#pragma unroll
    for (int i = 0; i < kQuad; ++i) words.v[i] = from_float<T>(quad.v[i]);
    *reinterpret_cast<Words*>(p) = words;
  } else {
#pragma unroll
    for (int i = 0; i < kQuad; ++i)
      if (i < left) p[i] = from_float<T>(quad.v[i]);
  }
}

// What depends on the step alone, formed once on the host in double.
struct AdamWFactors {
  float grad_scale, decay, take1, take2, rate, correct2, eps;

  explicit AdamWFactors(const AdamWStep& step) {
    const double b1 = step.beta1, b2 = step.beta2, t = static_cast<double>(step.t);
    grad_scale = step.grad_scale;
    eps = step.eps;
    decay = static_cast<float>(-static_cast<double>(step.lr) * step.weight_decay);
    take1 = static_cast<float>(1 - b1);
    take2 = static_cast<float>(1 - b2);
    rate = static_cast<float>(-step.lr / (1 - std::pow(b1, t)));
    correct2 = static_cast<float>(1 / std::sqrt(1 - std::pow(b2, t)));
  }
};

// `param` is null when it is `master` itself.
template <bool kAligned, typename P, typename G>
__global__ void __launch_bounds__(kBlock)
    adamw_kernel(P* param, float* master, float* m, float* v, const G* grad, int64_t n, AdamWFactors f) {
  for (int64_t first = grid_thread() * kQuad; first < n; first += grid_threads() * kQuad) {
    const int64_t left = n - first;
    const Quad g = load_quad<kAligned>(grad + first, left);
    Quad p = load_quad<kAligned>(master + first, left);
    Quad m1 = load_quad<kAligned>(m + first, left), m2 = load_quad<kAligned>(v + first, left);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      const float gi = __fmul_rn(g.v[i], f.grad_scale);  // not fused with the subtraction below
      p.v[i] = fmaf(f.decay, p.v[i], p.v[i]);
      m1.v[i] = fmaf(f.take1, gi - m1.v[i], m1.v[i]);
      m2.v[i] = fmaf(f.take2, fmaf(gi, gi, -m2.v[i]), m2.v[i]);
      p.v[i] = fmaf(f.rate, m1.v[i] / fmaf(sqrtf(m2.v[i]), f.correct2, f.eps), p.v[i]);
    }
    store_quad<kAligned>(master + first, p, left);
    store_quad<kAligned>(m + first, m1, left);
    store_quad<kAligned>(v + first, m2, left);
    if (param) store_quad<kAligned>(param + first, p, left);
  }
}

// `u` is null when momentum is 0. read_u is false in the first step: what the memory held before is never read.
template <bool kAligned, typename P, typename G>
__global__ void __launch_bounds__(kBlock)
    sgd_kernel(P* param, float* master, float* u, const G* grad, int64_t n, float grad_scale, float decay, float rate,
               float momentum, bool read_u) {
  for (int64_t first = grid_thread() * kQuad; first < n; first += grid_threads() * kQuad) {
    const int64_t left = n - first;
    const Quad g = load_quad<kAligned>(grad + first, left);
    Quad p = load_quad<kAligned>(master + first, left), step;
#pragma unroll
    for (int i = 0; i < kQuad; ++i) step.v[i] = fmaf(decay, p.v[i], __fmul_rn(g.v[i], grad_scale));
    if (u) {
      if (read_u) {
        const Quad before = load_quad<kAligned>(u + first, left);
#pragma unroll
        for (int i = 0; i < kQuad; ++i) step.v[i] = fmaf(momentum, before.v[i], step.v[i]);
      }
      store_quad<kAligned>(u + first, step, left);
    }
#pragma unroll
    for (int i = 0; i < kQuad; ++i) p.v[i] = fmaf(rate, step.v[i], p.v[i]);
    store_quad<kAligned>(master + first, p, left);
    if (param) store_quad<kAligned>(param + first, p, left);
  }
}

// Calls run(parameter, gradient) with pointers of the types that the views have; the parameter is null when it is the
// master's own memory.
template <typename Run>
void with_types(const char* kernel, View param, const float* master, ConstView grad, int64_t n, Run run) {
  dispatch_float(kernel, param.dtype, [&](auto p) {
    dispatch_float(kernel, grad.dtype, [&](auto g) {
      auto* out = device_argument<decltype(p)>(kernel, "param", param, n);
      const auto* gradient = device_argument<decltype(g)>(kernel, "grad", grad, n);
      run(static_cast<const void*>(out) == master ? nullptr : out, gradient);
    });
  });
}

}  // namespace

void CudaKernels::adamw(View param, View master, View m, View v, ConstView grad, const AdamWStep& step) {
  const int64_t n = master.size;
  float* p = device_argument<float>("adamw", "master", master, n);
  float* first = device_argument<float>("adamw", "m", m, n);
  float* second = device_argument<float>("adamw", "v", v, n);
  CHECK(step.t >= 1, "adamw: step number {} (the first step is 1)", step.t);
  with_types("adamw", param, p, grad, n, [&](auto* out, const auto* g) {
    using P = std::remove_reference_t<decltype(*out)>;
    using G = std::remove_cvref_t<decltype(*g)>;
    dispatch_bool(aligned16(p, first, second, out, g), [&](auto aligned) {
      launch(stream_, stride_blocks(divide_up(n, kQuad), kBlock), kBlock, 0, adamw_kernel<aligned(), P, G>, out, p,
             first, second, g, n, AdamWFactors(step));
    });
  });
}

void CudaKernels::sgd(View param, View master, View u, ConstView grad, const SgdStep& step) {
  const int64_t n = master.size;
  float* p = device_argument<float>("sgd", "master", master, n);
  CHECK(step.t >= 1, "sgd: step number {} (the first step is 1)", step.t);
  float* velocity = step.momentum != 0 ? device_argument<float>("sgd", "u", u, n) : nullptr;
  with_types("sgd", param, p, grad, n, [&](auto* out, const auto* g) {
    using P = std::remove_reference_t<decltype(*out)>;
    using G = std::remove_cvref_t<decltype(*g)>;
    dispatch_bool(aligned16(p, velocity, out, g), [&](auto aligned) {
      launch(stream_, stride_blocks(divide_up(n, kQuad), kBlock), kBlock, 0, sgd_kernel<aligned(), P, G>, out, p,
             velocity, g, n, step.grad_scale, step.weight_decay, -step.lr, step.momentum, step.t > 1);
    });
  });
}

}  // namespace trencadis
