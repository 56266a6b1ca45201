// dropout on the device: the CPU's mask, hence its bits.
#include "cuda_kernel_test.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

struct Sizes {
  int64_t B, n;
};
const std::vector<Sizes> kSizes = {{1, 1}, {2, 5}, {3, 8}, {5, 36}, {1, 1027}, {3, 402}};

}  // namespace

TEST_CASE("dropout has the CPU's bits, in place too") {
  for (DType type : kFloatTypes)
    for (const Sizes& s : kSizes)
      for (float probability : {0.0f, 0.1f, 0.5f}) {
        CAPTURE(s.B);
        CAPTURE(s.n);
        CAPTURE(probability);
        const auto x = random_floats(s.B * s.n, 1);
        // A sample beyond 2^32: both halves of its number count.
        const DropoutMask mask{probability, 42, 7, hash_name("site"), (int64_t{1} << 33) + 5};
        const auto call = [&](auto& b) {
          View y = b.values_out(s.B * s.n), z = b.values_inout(x);
          b.kernels().dropout(y, b.values_in(x), s.B, s.n, mask);
          b.kernels().dropout(z, z, s.B, s.n, mask);
        };
        const Result got = on_device(type, call), want = on_cpu(type, call);
        CHECK(same_values(got, want, 0));
        CHECK(got.bytes()[0] == got.bytes()[1]);
      }
}

TEST_CASE("the mask belongs to the sample, not to its place in the batch") {
  const std::vector<float> ones(3 * 41, 1.0f), last(41, 1.0f);
  DropoutMask mask{0.5f, 1, 2, 3, 10};
  const Result whole = on_device(DType::f32, [&](auto& b) {
    View y = b.values_out(3 * 41);
    b.kernels().dropout(y, b.values_in(ones), 3, 41, mask);
  });
  mask.first_sample = 12;
  const Result alone = on_device(DType::f32, [&](auto& b) {
    View y = b.values_out(41);
    b.kernels().dropout(y, b.values_in(last), 1, 41, mask);
  });
  const auto all = whole.values();
  CHECK(std::vector<float>(all.begin() + 2 * 41, all.end()) == alone.values());
}

TEST_CASE("a probability that is none is refused") {
  const std::vector<float> x = {1};
  on_device(DType::f32, [&](auto& b) {
    View y = b.inout(x);
    for (float bad : {-0.1f, 1.0f})
      expect_error([&] { b.kernels().dropout(y, y, 1, 1, DropoutMask{bad, 0, 0, 0, 0}); }, "dropout: probability");
  });
}
