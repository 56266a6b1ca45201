// zero, copy, cast, add, fill, normal on the device against the CPU's. One operation an element: the same bits, but for
// normal, whose log and cosine are another library's.
#include "cuda_kernel_test.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

// Around one group (4 or 8 elements), one warp of groups, and more elements than one block moves.
const std::vector<int64_t> kSizes = {1, 3, 4, 5, 7, 8, 9, 31, 257, 1030, 2500};

}  // namespace

TEST_CASE("zero, copy, fill") {
  for (DType type : kFloatTypes)
    for (int64_t n : kSizes) {
      CAPTURE(n);
      const auto x = random_floats(n, 1);
      const auto call = [&](auto& b) {
        View zeros = b.values_out(n), copied = b.values_out(n), filled = b.values_out(n);
        b.kernels().zero(zeros);
        b.kernels().copy(copied, b.values_in(x));
        b.kernels().fill(filled, 1.7f);
      };
      const Result got = on_device(type, call), want = on_cpu(type, call);
      for (size_t i = 0; i < 3; ++i) CHECK(same_values(got, want, i));
    }
}

TEST_CASE("copy moves bytes of any type, and no more than x has") {
  const std::vector<int32_t> ids = {5, -6, 7}, before = {1, 2, 3, 4};
  const auto call = [&](auto& b) {
    View y = b.inout(before);
    b.kernels().copy(y, b.in(ids));
  };
  CHECK(on_device(DType::f32, call).get<int32_t>(0) == std::vector<int32_t>{5, -6, 7, 4});
}

TEST_CASE("cast rounds to nearest even, and NaN stays NaN") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  // 1 + 2^-8 and 1 + 3 * 2^-8 are ties; 3.4e38 rounds to infinity.
  const std::vector<float> special = {1 + 0x1p-8f, 1 + 0x3p-8f, 3.4e38f, -3.4e38f, kInf, -kInf, 0.0f, -0.0f, 1e-40f};
  for (int64_t n : kSizes) {
    CAPTURE(n);
    auto x = random_floats(n, 2, 100);
    for (size_t i = 0; i < x.size() && i < special.size(); ++i) x[i] = special[i];
    const auto call = [&](auto& b) {
      View narrow = b.template out<bf16>(n), wide = b.out(n);
      b.kernels().cast(narrow, b.in(x));
      b.kernels().cast(wide, narrow);
    };
    CHECK(on_device(DType::f32, call).bytes() == on_cpu(DType::f32, call).bytes());
  }
  const std::vector<float> nans = {std::numeric_limits<float>::quiet_NaN(), 1};
  const Result got = on_device(DType::f32, [&](auto& b) {
    View narrow = b.template out<bf16>(2);
    b.kernels().cast(narrow, b.in(nans));
  });
  CHECK(std::isnan(got.values()[0]));
  CHECK(got.values()[1] == 1);
}

TEST_CASE("add, also in place on either side") {
  for (DType type : kFloatTypes)
    for (int64_t n : kSizes) {
      CAPTURE(n);
      const auto x = random_floats(n, 3), z = random_floats(n, 4);
      const auto call = [&](auto& b) {
        View sum = b.values_out(n), left = b.values_inout(x), right = b.values_inout(x), twice = b.values_inout(x);
        const View other = b.values_in(z);
        b.kernels().add(sum, b.values_in(x), other);
        b.kernels().add(left, other);
        b.kernels().add(right, other, right);
        b.kernels().add(twice, twice);
      };
      const Result got = on_device(type, call), want = on_cpu(type, call);
      for (size_t i = 0; i < 4; ++i) CHECK(same_values(got, want, i));
    }
}

TEST_CASE("normal: any range of the global elements, as on the CPU but for the last bit") {
  for (DType type : kFloatTypes)
    for (int64_t first : {int64_t{0}, int64_t{1}, int64_t{6}, (int64_t{1} << 33) + 3})
      for (int64_t n : {int64_t{1}, int64_t{2}, int64_t{9}, int64_t{1100}}) {
        CAPTURE(first);
        CAPTURE(n);
        const auto call = [&](auto& b) {
          View x = b.values_out(n);
          b.kernels().normal(x, 0.02f, 77, first);
        };
        const auto got = on_device(type, call).values(), want = on_cpu(type, call).values();
        const float ulp = type == DType::bf16 ? 0x1p-8f : 0x1p-23f;
        for (size_t i = 0; i < want.size(); ++i) {
          CAPTURE(i);
          REQUIRE(std::abs(got[i] - want[i]) <= ulp * std::abs(want[i]) + 1e-17f);
        }
      }
}

TEST_CASE("nothing to do is no error, and what does not fit is refused") {
  const std::vector<float> none;
  on_device(DType::f32, [&](auto& b) {
    View y = b.values_out(0);
    b.kernels().zero(y);
    b.kernels().copy(y, b.values_in(none));
    b.kernels().add(y, b.values_in(none));
    b.kernels().fill(y, 1);
    b.kernels().normal(y, 1, 1, 0);
  });
  const std::vector<float> two = {1, 2}, three = {1, 2, 3};
  on_device(DType::f32, [&](auto& b) {
    View small = b.inout(two), integers = b.inout(std::vector<int32_t>{1, 2});
    const View large = b.in(three);
    expect_error([&] { b.kernels().add(small, large); }, "add: y has 2 elements, 3 are needed");
    expect_error([&] { b.kernels().copy(small, large); }, "copy: 3 elements");
    expect_error([&] { b.kernels().fill(integers, 1); }, "fill: elements are i32");
    expect_error([&] { b.kernels().normal(small, 1, 1, -1); }, "normal: first element -1");
    const View odd(reinterpret_cast<float*>(static_cast<char*>(small.data) + 1), 1);
    expect_error([&] { b.kernels().fill(odd, 1); }, "not at a multiple of 4");
  });
}
