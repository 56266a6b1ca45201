// AdamW and SGD on flat ranges of parameters, one pass over memory each.
//
// What depends on the step alone (bias corrections, products of factors) is formed once, in double. The element's
// formula has one order of operations for all lanes and tails. `param` may be `master` itself, or its bf16 image.
#include <cmath>

#include "runtime/cpu/argument.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/vec.h"

namespace trencadis {

namespace {

constexpr int64_t kGrain = 16384;  // elements of a chunk at least

void store_as(float* p, vec::F32 x, int64_t lanes) { vec::store(p, x, lanes); }
void store_as(bf16* p, vec::F32 x, int64_t lanes) {
  float values[vec::kLanes];
  vec::store(values, x);
  for (int64_t i = 0; i < lanes; ++i) p[i] = bf16(values[i]);
}

// Calls run(parameter pointer) with the type that `param` has.
template <typename Run>
void with_parameter(const char* kernel, View param, int64_t n, Run run) {
  CHECK(param.dtype == DType::f32 || param.dtype == DType::bf16, "{}: param is {}, must be f32 or bf16", kernel,
        name_of(param.dtype));
  if (param.dtype == DType::bf16)
    run(argument<bf16>(kernel, "param", param, n));
  else
    run(argument<float>(kernel, "param", param, n));
}

}  // namespace

void CpuKernels::adamw(View param, View master, View m, View v, ConstView grad, const AdamWStep& step) {
  const int64_t n = master.size;
  float* p = argument<float>("adamw", "master", master, n);
  float* first = argument<float>("adamw", "m", m, n);
  float* second = argument<float>("adamw", "v", v, n);
  const float* g = argument<float>("adamw", "grad", grad, n);
  CHECK(step.t >= 1, "adamw: step number {} (the first step is 1)", step.t);

  const double b1 = step.beta1, b2 = step.beta2, t = static_cast<double>(step.t);
  const vec::F32 grad_scale = step.grad_scale, eps = step.eps;
  const vec::F32 decay = static_cast<float>(-static_cast<double>(step.lr) * step.weight_decay);
  const vec::F32 take1 = static_cast<float>(1 - b1), take2 = static_cast<float>(1 - b2);
  const vec::F32 rate = static_cast<float>(-step.lr / (1 - std::pow(b1, t)));
  const vec::F32 correct2 = static_cast<float>(1 / std::sqrt(1 - std::pow(b2, t)));

  with_parameter("adamw", param, n, [&](auto* out) {
    const bool write_param = static_cast<void*>(out) != p;
    const Chunks chunks(n, kGrain);
    pool_.run(chunks.count, [&](int64_t chunk) {
      const int64_t begin = chunks.begin(chunk);
      vec::for_lanes(chunks.end(chunk, n) - begin, [&](int64_t offset, int64_t lanes) {
        const int64_t i = begin + offset;
        const vec::F32 gi = vec::load(g + i, lanes) * grad_scale;
        vec::F32 pi = vec::load(p + i, lanes);
        vec::F32 mi = vec::load(first + i, lanes), vi = vec::load(second + i, lanes);
        pi = vec::fma(decay, pi, pi);
        mi = vec::fma(take1, gi - mi, mi);
        vi = vec::fma(take2, vec::fma(gi, gi, -vi), vi);
        pi = vec::fma(rate, mi / vec::fma(vec::sqrt(vi), correct2, eps), pi);
        vec::store(p + i, pi, lanes);
        vec::store(first + i, mi, lanes);
        vec::store(second + i, vi, lanes);
        if (write_param) store_as(out + i, pi, lanes);
      });
    });
  });
}

void CpuKernels::sgd(View param, View master, View u, ConstView grad, const SgdStep& step) {
  const int64_t n = master.size;
  float* p = argument<float>("sgd", "master", master, n);
  const float* g = argument<float>("sgd", "grad", grad, n);
  CHECK(step.t >= 1, "sgd: step number {} (the first step is 1)", step.t);
  // Without momentum nothing is kept between steps.
  float* velocity = step.momentum != 0 ? argument<float>("sgd", "u", u, n) : nullptr;
  const vec::F32 grad_scale = step.grad_scale, decay = step.weight_decay, rate = -step.lr;
  const vec::F32 momentum = step.momentum;

  with_parameter("sgd", param, n, [&](auto* out) {
    const bool write_param = static_cast<void*>(out) != p;
    const Chunks chunks(n, kGrain);
    pool_.run(chunks.count, [&](int64_t chunk) {
      const int64_t begin = chunks.begin(chunk);
      vec::for_lanes(chunks.end(chunk, n) - begin, [&](int64_t offset, int64_t lanes) {
        const int64_t i = begin + offset;
        vec::F32 pi = vec::load(p + i, lanes);
        vec::F32 ui = vec::fma(decay, pi, vec::load(g + i, lanes) * grad_scale);
        if (velocity) {
          // The first step's u is the gradient; what the memory held before is never read.
          if (step.t > 1) ui = vec::fma(momentum, vec::load(velocity + i, lanes), ui);
          vec::store(velocity + i, ui, lanes);
        }
        pi = vec::fma(rate, ui, pi);
        vec::store(p + i, pi, lanes);
        if (write_param) store_as(out + i, pi, lanes);
      });
    });
  });
}

}  // namespace trencadis
