// Every rung of the ladder of matrix products against the CPU's matmul().
#include "cuda_kernel_test.h"
#include "runtime/cuda/ladder/matmul.h"

namespace trencadis::test {
namespace {

struct Product {
  int64_t M, N, K;
};
const std::vector<Product> kProducts = {
    {1, 1, 1},       // one of everything
    {17, 5, 8},      // part of one tile
    {33, 65, 40},    // several small tiles
    {130, 129, 72},  // two rungs' large tiles and a bit, in each direction; several steps of K
    {31, 130, 37},   // rows that are not aligned
    {3, 4, 0},       // a sum of nothing
};

// A sum of K products of values below 1, in f32: off by at most K * 2^-24 for each of its K roundings, in practice by
// the square root of that. Relative to the largest result, of the order of sqrt(K) / 3.
constexpr double kBound = 2e-6;

void compare(Matmul& rung, DType type) {
  for (const Product& p : kProducts) {
    CAPTURE(p.M);
    CAPTURE(p.N);
    CAPTURE(p.K);
    const bool is_bf16 = type == DType::bf16;
    CAPTURE(is_bf16);
    const auto a = random_floats(p.M * p.K, 1), b = random_floats(p.N * p.K, 2);
    const auto call = [&](auto& arrays) {
      const View c = arrays.values_out(p.M * p.N), left = arrays.values_in(a), right = arrays.values_in(b);
      if constexpr (requires { arrays.stream(); })
        rung(arrays.stream(), c, left, right, p.M, p.N, p.K);
      else
        arrays.kernels().matmul(c, left, right, p.M, p.N, p.K, false, true, false);
    };
    CHECK(error_ratio(on_device(type, call), on_cpu(type, call), 0, kBound) <= 1);
  }
}

TEST_CASE("ladder of products: naive") {
  for (DType type : kFloatTypes) compare(matmul_naive, type);
}
TEST_CASE("ladder of products: tiled") {
  for (DType type : kFloatTypes) compare(matmul_tiled, type);
}
TEST_CASE("ladder of products: fast") {
  for (DType type : kFloatTypes) compare(matmul_fast, type);
}
TEST_CASE("ladder of products: tensor core") {
  compare(matmul_tensor_core, DType::bf16);
  DeviceArrays b(DType::f32, 0, false);
  const View x = b.out(4);
  expect_error([&] { matmul_tensor_core(b.stream(), x, x, x, 2, 2, 2); }, "must be bf16");
}

TEST_CASE("ladder of products: short views are refused") {
  for (Matmul* rung : {matmul_naive, matmul_tiled, matmul_fast, matmul_tensor_core}) {
    DeviceArrays b(DType::bf16, 0, false);
    const View x = b.values_out(6);
    expect_error([&] { rung(b.stream(), x, x, x, 2, 3, 4); }, "elements");
  }
}

}  // namespace
}  // namespace trencadis::test
