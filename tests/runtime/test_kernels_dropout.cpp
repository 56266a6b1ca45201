// dropout: the mask of runtime/random.h, its share, and that it belongs to samples rather than to batches.
#include "runtime/kernel_test.h"
#include "runtime/kernels.h"

namespace trencadis {
namespace {

// The definition, one element at a time.
float factor(const DropoutMask& mask, int64_t sample, int64_t element) {
  const auto s = static_cast<uint64_t>(mask.first_sample + sample), block = static_cast<uint64_t>(element) / 4;
  const auto words = philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(s),
                             static_cast<uint32_t>(s >> 32)},
                            mask.key());
  return words[static_cast<size_t>(element % 4)] < mask.threshold() ? 0.0f : mask.scale();
}

std::vector<float> dropout(const std::vector<float>& x, int64_t B, int64_t n, const DropoutMask& mask) {
  return test::same_bits([&](test::Buffers& b) {
           View y = b.out(B * n);
           b.kernels().dropout(y, b.in(x), B, n, mask);
         })
      .get();
}

TEST_CASE("dropout: every element follows the definition of its mask") {
  for (int64_t n : {1, 3, 16, 17, 63, 64, 65, 1023, 1025, 9001}) {
    for (int64_t B : {1, 3}) {
      // A sample number beyond 32 bits, as a long training reaches.
      const DropoutMask mask{.probability = 0.3f,
                             .seed = 7,
                             .step = 11,
                             .site = hash_name("site"),
                             .first_sample = (int64_t{1} << 33) + 5};
      const auto x = test::random_floats(B * n, 3);
      const auto y = dropout(x, B, n, mask);
      bool equal = true;
      for (int64_t i = 0; i < B * n; ++i) {
        const auto at = static_cast<size_t>(i);
        equal &= y[at] == x[at] * factor(mask, i / n, i % n);
      }
      CHECK(equal);
    }
  }
}

TEST_CASE("dropout: keeps the expected share and the mean") {
  const int64_t n = 200000;
  const auto y = dropout(std::vector<float>(n, 1.0f), 1, n, {.probability = 0.2f, .seed = 1, .step = 1, .site = 2});
  double kept = 0, sum = 0;
  for (float value : y) kept += value != 0, sum += static_cast<double>(value);
  // Four standard deviations of a share of 0.8 over n draws are 0.0036.
  CHECK(std::abs(kept / n - 0.8) < 0.0036);
  CHECK(std::abs(sum / n - 1) < 0.0045);
}

TEST_CASE("dropout: a batch cut in two has the masks of the whole") {
  const int64_t B = 5, n = 777;
  DropoutMask mask{.probability = 0.5f, .seed = 3, .step = 4, .site = 5, .first_sample = 100};
  const auto x = test::random_floats(B * n, 4);
  const auto whole = dropout(x, B, n, mask);
  auto parts = dropout({x.begin(), x.begin() + 2 * n}, 2, n, mask);
  mask.first_sample += 2;
  const auto rest = dropout({x.begin() + 2 * n, x.end()}, 3, n, mask);
  parts.insert(parts.end(), rest.begin(), rest.end());
  CHECK(parts == whole);
}

TEST_CASE("dropout: seed, step, site and sample each change the mask") {
  const std::vector<float> ones(256, 1.0f);
  const DropoutMask mask{.probability = 0.5f, .seed = 1, .step = 1, .site = 1, .first_sample = 1};
  const auto y = dropout(ones, 1, 256, mask);
  for (int which = 0; which < 4; ++which) {
    DropoutMask other = mask;
    if (which == 0) other.seed = 2;
    if (which == 1) other.step = 2;
    if (which == 2) other.site = 2;
    if (which == 3) other.first_sample = 2;
    CHECK(dropout(ones, 1, 256, other) != y);
  }
}

TEST_CASE("dropout: in place, and probability 0 copies") {
  const auto x = test::random_floats(2 * 70, 5);
  const DropoutMask mask{.probability = 0.25f, .seed = 9};
  const auto in_place = test::same_bits([&](test::Buffers& b) {
    View y = b.inout(x);
    b.kernels().dropout(y, y, 2, 70, mask);
  });
  CHECK(in_place.get() == dropout(x, 2, 70, mask));
  CHECK(dropout(x, 2, 70, {.probability = 0}) == x);
}

TEST_CASE("dropout: refuses a probability of 1 and short views") {
  Context context(make_cpu_backend());
  test::Buffers b(context);
  View x = b.out(8);
  test::expect_error([&] { context.kernels().dropout(x, x, 1, 8, {.probability = 1}); }, "probability 1");
  test::expect_error([&] { context.kernels().dropout(x, x, 3, 3, {.probability = 0.5f}); }, "9 are needed");
}

}  // namespace
}  // namespace trencadis
