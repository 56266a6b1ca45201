// bias_gelu and its backward pass on the device against the CPU's.
#include "cuda_kernel_test.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

struct Sizes {
  int64_t N, K;
};
// Columns around one group, and more than a block's 128 (f32) or 256 (bf16); rows for several chunks of 32.
const std::vector<Sizes> kSizes = {{1, 1}, {1, 40}, {3, 5}, {35, 16}, {70, 12}, {9, 136}, {5, 261}, {4, 300}};

// exp of two libraries within 2 ulp of each other, and a few more operations.
constexpr double kBound = 1e-6;

}  // namespace

TEST_CASE("bias_gelu") {
  for (DType type : kFloatTypes)
    for (const Sizes& s : kSizes) {
      CAPTURE(s.N);
      CAPTURE(s.K);
      const auto x = random_floats(s.N * s.K, 1, 6), bias = random_floats(s.K, 2);
      const auto call = [&](auto& b) {
        View y = b.values_out(s.N * s.K);
        b.kernels().bias_gelu(y, b.values_in(x), b.values_in(bias), s.N, s.K);
      };
      CHECK(error_ratio(on_device(type, call), on_cpu(type, call), 0, kBound) <= 1);
    }
}

TEST_CASE("bias_gelu_backward: dx, in place too; dbias written, added to, or frozen") {
  for (DType type : kFloatTypes)
    for (const Sizes& s : kSizes) {
      CAPTURE(s.N);
      CAPTURE(s.K);
      const auto x = random_floats(s.N * s.K, 3, 6), bias = random_floats(s.K, 4), dy = random_floats(s.N * s.K, 5);
      const auto before = random_floats(s.K, 6);
      const auto writes = [&](auto& b) {
        View dx = b.values_out(s.N * s.K), dbias = b.values_out(s.K);
        b.kernels().bias_gelu_backward(dx, dbias, b.values_in(dy), b.values_in(x), b.values_in(bias), s.N, s.K, false);
      };
      const auto adds_in_place = [&](auto& b) {
        View dx = b.values_inout(dy), dbias = b.values_inout(before);
        b.kernels().bias_gelu_backward(dx, dbias, dx, b.values_in(x), b.values_in(bias), s.N, s.K, true);
      };
      const auto frozen = [&](auto& b) {
        View dx = b.values_out(s.N * s.K);
        b.kernels().bias_gelu_backward(dx, View(), b.values_in(dy), b.values_in(x), b.values_in(bias), s.N, s.K, true);
      };
      const Result got = on_device(type, writes), want = on_cpu(type, writes);
      const Result added = on_device(type, adds_in_place), want_added = on_cpu(type, adds_in_place);
      // A sum of N terms of up to 1.1 each.
      const double scale = 1.1 * static_cast<double>(s.N);
      CHECK(error_ratio(got, want, 0, kBound) <= 1);
      CHECK(error_ratio(got, want, 1, kBound, scale) <= 1);
      CHECK(added.bytes()[0] == got.bytes()[0]);
      CHECK(error_ratio(added, want_added, 1, kBound, scale) <= 1);
      CHECK(on_device(type, frozen).bytes()[0] == got.bytes()[0]);
    }
}

TEST_CASE("large and special values") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {-200, -15, -10, 10, 15, 200, kInf, std::numeric_limits<float>::quiet_NaN(), -1e30f};
  const std::vector<float> zero(x.size(), 0.0f), one(x.size(), 1.0f);
  const auto n = static_cast<int64_t>(x.size());
  const auto call = [&](auto& b) {
    View y = b.values_out(n), dx = b.values_out(n);
    b.kernels().bias_gelu(y, b.values_in(x), b.values_in(zero), 1, n);
    b.kernels().bias_gelu_backward(dx, View(), b.values_in(one), b.values_in(x), b.values_in(zero), 1, n, false);
  };
  for (DType type : kFloatTypes) {
    const Result got = on_device(type, call), want = on_cpu(type, call);
    for (size_t which : {size_t{0}, size_t{1}})
      for (size_t i = 0; i < x.size(); ++i) {
        CAPTURE(x[i]);
        const float a = got.values(which)[i], w = want.values(which)[i];
        CHECK(close(a, w, type == DType::bf16 ? 0x1p-8 : 1e-6));
      }
  }
}

TEST_CASE("no rows: dbias is 0, or stays") {
  const std::vector<float> none, bias = {1, 2, 3};
  for (bool accumulate : {false, true}) {
    const Result got = on_device(DType::f32, [&](auto& b) {
      View dbias = b.values_inout(bias);
      b.kernels().bias_gelu_backward(b.values_in(none), dbias, b.values_in(none), b.values_in(none), b.values_in(bias),
                                     0, 3, accumulate);
    });
    CHECK(got.values() == (accumulate ? bias : std::vector<float>(3, 0.0f)));
  }
}
