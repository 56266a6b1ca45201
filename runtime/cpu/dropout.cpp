// Dropout: y = x * keep / (1 - p), the mask a function of (seed, step, site, sample, element) alone.
//
// Backward is the same call on the gradient: nothing is saved but the mask's few numbers. Chunks are cut inside
// samples, by n alone, so that a batch cut in two gives the same bits as the whole.
#include "runtime/cpu/argument.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/dropout_mask.h"
#include "runtime/cpu/vec.h"

namespace trencadis {

void CpuKernels::dropout(View y, ConstView x, int64_t B, int64_t n, const DropoutMask& mask) {
  float* out = argument<float>("dropout", "y", y, B * n);
  const float* in = argument<float>("dropout", "x", x, B * n);
  CHECK(mask.probability >= 0 && mask.probability < 1, "dropout: probability {} is not in [0, 1)", mask.probability);
  if (mask.probability == 0) {
    if (out != in) copy(y, {in, B * n});
    return;
  }

  constexpr int64_t kBlock = 1024;  // elements whose factors are made at once
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  const Chunks chunks(B * blocks, 4);
  pool_.run(chunks.count, [&](int64_t chunk) {
    alignas(64) float factor[kBlock];
    for (int64_t i = chunks.begin(chunk); i < chunks.end(chunk, B * blocks); ++i) {
      const int64_t b = i / blocks, first = i % blocks * kBlock, count = std::min(kBlock, n - first);
      DropoutFactors(mask, b).write(factor, first, count);
      const float* source = in + b * n + first;
      float* target = out + b * n + first;
      vec::for_lanes(count, [&](int64_t e, int64_t lanes) {
        vec::store(target + e, vec::load(source + e, lanes) * vec::load(factor + e), lanes);
      });
    }
  });
}

}  // namespace trencadis
