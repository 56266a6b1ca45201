// Softmax and cross entropy of rows of logits (N,V).
//
// Rows are independent. The loss is a sum over rows of the whole step, on all ranks, so it is summed in fixed point
// (kLossUnit): integers have no order. A loss that is not finite is counted instead of added; one so large that a
// step's sum could overflow 63 bits counts as not finite too. Within a row sums are formed in blocks: V reaches 50257,
// where one f32 sum would lose four digits.
#include <cmath>
#include <limits>

#include "runtime/cpu/argument.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/vec.h"

namespace trencadis {

namespace {

constexpr double kLargestLoss = 1 << 20;  // nats; times 2^13 tokens and 2^30 units it fits 63 bits
constexpr int64_t kGrain = 8192;          // elements of a chunk of rows at least
constexpr int64_t kMaxChunks = 64;

// log sum_v exp(x_v), in double.
double log_sum_exp(const float* x, int64_t V) {
  constexpr int64_t kBlock = 1024;
  vec::F32 most = -std::numeric_limits<float>::infinity();
  vec::for_lanes(V, [&](int64_t v, int64_t lanes) {
    most = vec::max(most, vec::load(x + v, lanes, -std::numeric_limits<float>::infinity()));
  });
  const float largest = vec::max_of(most);
  double sum = 0;
  for (int64_t begin = 0; begin < V; begin += kBlock) {
    vec::F32 part = 0.0f;
    vec::for_lanes(std::min(kBlock, V - begin), [&](int64_t v, int64_t lanes) {
      // Lanes beyond the row are exp(-inf) = 0.
      part += vec::exp(vec::load(x + begin + v, lanes, -std::numeric_limits<float>::infinity()) - largest);
    });
    sum += static_cast<double>(vec::sum(part));
  }
  return static_cast<double>(largest) + std::log(sum);
}

void check_targets(const char* kernel, const int32_t* targets, int64_t N, int64_t V) {
  for (int64_t i = 0; i < N; ++i)
    CHECK(targets[i] < V,
          "{}: target {} at position {} is not below the vocabulary's {}; was the data tokenised for this model?",
          kernel, targets[i], i, V);
}

}  // namespace

void CpuKernels::softmax_cross_entropy(View loss, View lse, View totals, ConstView logits, ConstView targets, int64_t N,
                                       int64_t V) {
  const char* kernel = "softmax_cross_entropy";
  CHECK(N >= 0 && V > 0, "{}: {} rows of {} logits", kernel, N, V);
  float* loss_out = argument<float>(kernel, "loss", loss, 1);
  float* lse_out = argument<float>(kernel, "lse", lse, N);
  int64_t* total = argument<int64_t>(kernel, "totals", totals, kLossWords);
  const float* x = argument<float>(kernel, "logits", logits, N * V);
  const int32_t* target = argument<int32_t>(kernel, "targets", targets, N);
  check_targets(kernel, target, N, V);

  struct Part {
    int64_t words[kLossWords] = {};
    int64_t nans = 0;
  };
  Part part[kMaxChunks];
  const Chunks chunks(N, kGrain / V);
  pool_.run(chunks.count, [&](int64_t chunk) {
    Part& p = part[chunk];
    for (int64_t i = chunks.begin(chunk); i < chunks.end(chunk, N); ++i) {
      const double row_lse = log_sum_exp(x + i * V, V);
      lse_out[i] = static_cast<float>(row_lse);
      if (target[i] < 0) continue;
      const double l = row_lse - static_cast<double>(x[i * V + target[i]]);
      ++p.words[kLossTokens];
      if (std::abs(l) <= kLargestLoss) {
        p.words[kLossFixedPoint] += std::llrint(l / kLossUnit);
      } else {
        ++p.words[kLossNonFinite];
        p.nans += std::isnan(l);
      }
    }
  });

  Part sum;
  for (int64_t c = 0; c < chunks.count; ++c) {
    for (int w = 0; w < kLossWords; ++w) sum.words[w] += part[c].words[w];
    sum.nans += part[c].nans;
  }
  for (int w = 0; w < kLossWords; ++w) write_word(total, w, read_word(total, w) + sum.words[w]);
  if (sum.nans)
    *loss_out = std::numeric_limits<float>::quiet_NaN();
  else if (sum.words[kLossNonFinite])
    *loss_out = std::numeric_limits<float>::infinity();
  else
    *loss_out = static_cast<float>(static_cast<double>(sum.words[kLossFixedPoint]) * kLossUnit);
}

void CpuKernels::softmax_cross_entropy_backward(View logits, ConstView lse, ConstView targets, ConstView dloss,
                                                int64_t N, int64_t V) {
  const char* kernel = "softmax_cross_entropy_backward";
  CHECK(N >= 0 && V > 0, "{}: {} rows of {} logits", kernel, N, V);
  float* x = argument<float>(kernel, "logits", logits, N * V);
  const float* row_lse = argument<float>(kernel, "lse", lse, N);
  const int32_t* target = argument<int32_t>(kernel, "targets", targets, N);
  const float scale = *argument<float>(kernel, "dloss", dloss, 1);
  check_targets(kernel, target, N, V);

  const Chunks chunks(N, kGrain / V);
  pool_.run(chunks.count, [&](int64_t chunk) {
    for (int64_t i = chunks.begin(chunk); i < chunks.end(chunk, N); ++i) {
      float* row = x + i * V;
      if (target[i] < 0) {
        std::fill(row, row + V, 0.0f);
        continue;
      }
      const vec::F32 shift = row_lse[i];
      // The target's own probability, by the formula of the loop, before the loop overwrites its logit.
      const float p = vec::exp(vec::F32(row[target[i]]) - shift)[0];
      vec::for_lanes(V, [&](int64_t v, int64_t lanes) {
        vec::store(row + v, vec::exp(vec::load(row + v, lanes) - shift) * scale, lanes);
      });
      row[target[i]] = (p - 1.0f) * scale;
    }
  });
}

}  // namespace trencadis
