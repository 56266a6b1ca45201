// zero, copy, cast, add, fill: exact results, so the comparison is with ==.
#include "kernel_test.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {
// Around the vector length, around a chunk (16384 elements), and far beyond it.
const std::vector<int64_t> kSizes = {0, 1, 2, 15, 16, 17, 33, 1000, 16383, 16385, 100003};
}  // namespace

TEST_CASE("add") {
  for (int64_t n : kSizes) {
    const auto x = random_floats(n, 1), y = random_floats(n, 2);
    std::vector<float> want(x.size());
    for (size_t i = 0; i < want.size(); ++i) want[i] = x[i] + y[i];
    CHECK(same_bits([&](Buffers& b) { b.kernels().add(b.out(n), b.in(x), b.in(y)); }).get() == want);
    CHECK(same_bits([&](Buffers& b) { b.kernels().add(b.inout(x), b.in(y)); }).get() == want);
    CHECK(same_bits([&](Buffers& b) {
            View a = b.inout(x);
            b.kernels().add(a, a, b.in(y));
          }).get() == want);
    CHECK(same_bits([&](Buffers& b) {
            View a = b.inout(y);
            b.kernels().add(a, b.in(x), a);
          }).get() == want);
  }
}

TEST_CASE("zero, fill, copy") {
  for (int64_t n : kSizes) {
    const size_t size = static_cast<size_t>(n);
    const auto x = random_floats(n, 3);
    const auto ints = random_ints(n, 4, 1 << 30);
    CHECK(same_bits([&](Buffers& b) { b.kernels().zero(b.out(n)); }).get() == std::vector<float>(size, 0.0f));
    CHECK(same_bits([&](Buffers& b) { b.kernels().zero(b.out<int64_t>(n)); }).get<int64_t>() ==
          std::vector<int64_t>(size, 0));
    CHECK(same_bits([&](Buffers& b) { b.kernels().fill(b.out(n), -1.5f); }).get() == std::vector<float>(size, -1.5f));
    CHECK(same_bits([&](Buffers& b) { b.kernels().copy(b.out(n), b.in(x)); }).get() == x);
    CHECK(same_bits([&](Buffers& b) { b.kernels().copy(b.out<int32_t>(n), b.in(ints)); }).get<int32_t>() == ints);
  }
}

TEST_CASE("cast rounds as bf16 does, and back exactly") {
  for (int64_t n : kSizes) {
    auto x = random_floats(n, 5);
    if (n > 3) {
      x[0] = std::numeric_limits<float>::infinity();
      x[1] = std::numeric_limits<float>::max();
      x[2] = std::numeric_limits<float>::denorm_min();
    }
    std::vector<bf16> want(x.size());
    std::vector<float> back(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      want[i] = bf16(x[i]);
      back[i] = static_cast<float>(want[i]);
    }
    const auto got = same_bits([&](Buffers& b) { b.kernels().cast(b.out<bf16>(n), b.in(x)); }).get<bf16>();
    CHECK(std::equal(got.begin(), got.end(), want.begin(), [](bf16 a, bf16 b) { return a.bits == b.bits; }));
    CHECK(same_bits([&](Buffers& b) { b.kernels().cast(b.out(n), b.in(want)); }).get() == back);
    CHECK(same_bits([&](Buffers& b) { b.kernels().cast(b.out(n), b.in(x)); }).get() == x);
  }
  const std::vector<float> nan = {std::bit_cast<float>(0x7f800001u)};
  CHECK(same_bits([&](Buffers& b) { b.kernels().cast(b.out<bf16>(1), b.in(nan)); }).get<uint16_t>()[0] == 0x7fc0);
}

TEST_CASE("a longer view is written only as far as needed") {
  const auto x = random_floats(5, 6), y = random_floats(8, 7);
  const auto got = same_bits([&](Buffers& b) { b.kernels().copy(b.inout(y), b.in(x)); }).get();
  CHECK(std::equal(x.begin(), x.end(), got.begin()));
  CHECK(std::equal(y.begin() + 5, y.end(), got.begin() + 5));
}

TEST_CASE("arguments that do not fit are refused") {
  Context context(make_cpu_backend());
  Kernels& k = context.kernels();
  const Tensor three = Tensor::zeros(context, {3}), four = Tensor::zeros(context, {4});
  const Tensor ints = Tensor::zeros(context, {4}, DType::i32);
  expect_error([&] { k.copy(three, four); }, "copy");
  expect_error([&] { k.copy(four, ints); }, "i32");
  expect_error([&] { k.add(three, four); }, "3");
  expect_error([&] { k.add(four, three, four); }, "add");
  expect_error([&] { k.fill(ints, 1); }, "i32");
  expect_error([&] { k.cast(four, ints); }, "cast");
  expect_error([&] { k.normal(four, 1, 0, -1); }, "-1");
}
