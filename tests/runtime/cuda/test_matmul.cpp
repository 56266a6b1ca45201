// matmul(), linear() and bias_backward() on the device against the CPU's.
//
// cuBLAS may choose another algorithm, and with it other bits, for other addresses: products are run on aligned arrays
// and on shifted ones, and each result is compared to the CPU's, not to the other.
#include "cuda_kernel_test.h"

namespace trencadis::test {
namespace {

// A sum of K products of values below 1, in f32, relative to the largest result.
constexpr double kBound = 2e-6;

template <typename Call>
void compare_product(DType type, const Call& call, double bound = kBound) {
  const Result want = on_cpu(type, call);
  for (size_t shift : {size_t{0}, size_t{1}}) {
    CAPTURE(shift);
    DeviceArrays arrays(type, shift, true);
    call(arrays);
    CHECK(error_ratio(arrays.finish(), want, 0, bound) <= 1);
  }
}

struct Product {
  int64_t M, N, K;
};
const std::vector<Product> kProducts = {{1, 1, 1},    {1, 7, 3},    {5, 1, 9}, {3, 4, 1},
                                        {17, 31, 13}, {16, 24, 40}, {4, 2, 0}};

TEST_CASE("products on the device in all four layouts, writing and accumulating") {
  for (const Product& p : kProducts) {
    CAPTURE(p.M);
    CAPTURE(p.N);
    CAPTURE(p.K);
    const auto a = random_floats(p.M * p.K, 1), b = random_floats(p.K * p.N, 2), c = random_floats(p.M * p.N, 3);
    for (DType type : kFloatTypes) {
      for (bool trans_a : {false, true}) {
        for (bool trans_b : {false, true}) {
          compare_product(type, [&](auto& arrays) {
            const View out = arrays.values_out(p.M * p.N), left = arrays.values_in(a);
            arrays.kernels().matmul(out, left, arrays.values_in(b), p.M, p.N, p.K, trans_a, trans_b, false);
          });
          compare_product(type, [&](auto& arrays) {
            const View out = arrays.values_inout(c), left = arrays.values_in(a);
            arrays.kernels().matmul(out, left, arrays.values_in(b), p.M, p.N, p.K, trans_a, trans_b, true);
          });
        }
      }
    }
  }
}

TEST_CASE("products on the device with TF32: operands lose 13 bits, sums none") {
  const int64_t M = 9, N = 10, K = 64;
  const auto a = random_floats(M * K, 1), b = random_floats(K * N, 2);
  const Result want = on_cpu(DType::f32, [&](auto& arrays) {
    const View c = arrays.values_out(M * N), left = arrays.values_in(a);
    arrays.kernels().matmul(c, left, arrays.values_in(b), M, N, K, false, false, false);
  });
  DeviceArrays arrays(DType::f32, 0, false);
  CublasHandle with_tf32(arrays.stream(), true);
  CudaKernels kernels(arrays.stream(), with_tf32, arrays.scratch());
  const View c = arrays.values_out(M * N), left = arrays.values_in(a);
  kernels.matmul(c, left, arrays.values_in(b), M, N, K, false, false, false);
  // Each of the K products, below 1, is off by 2^-11 twice; their signs are random, the largest result is above 4.
  CHECK(error_ratio(arrays.finish(), want, 0, 2e-3) <= 1);
}

TEST_CASE("linear on the device, with and without bias") {
  for (const Product& p : kProducts) {  // M rows, N features, K channels
    CAPTURE(p.M);
    CAPTURE(p.N);
    CAPTURE(p.K);
    const auto x = random_floats(p.M * p.K, 1), w = random_floats(p.N * p.K, 2), bias = random_floats(p.N, 3);
    for (DType type : kFloatTypes) {
      compare_product(type, [&](auto& arrays) {
        const View y = arrays.values_out(p.M * p.N), in = arrays.values_in(x), weight = arrays.values_in(w);
        arrays.kernels().linear(y, in, weight, arrays.values_in(bias), p.M, p.K, p.N);
      });
      compare_product(type, [&](auto& arrays) {
        const View y = arrays.values_out(p.M * p.N), in = arrays.values_in(x);
        arrays.kernels().linear(y, in, arrays.values_in(w), {}, p.M, p.K, p.N);
      });
    }
  }
}

TEST_CASE("bias_backward on the device: one row, part of a chunk, several chunks, rows that are not aligned") {
  struct Shape {
    int64_t N, K;
  };
  for (const Shape& shape : {Shape{0, 3}, Shape{1, 1}, Shape{5, 16}, Shape{70, 5}, Shape{64, 136}, Shape{200, 72}}) {
    CAPTURE(shape.N);
    CAPTURE(shape.K);
    const auto dy = random_floats(shape.N * shape.K, 1), db = random_floats(shape.K, 2);
    for (DType type : kFloatTypes) {
      for (bool accumulate : {false, true}) {
        const auto call = [&](auto& arrays) {
          const View out = accumulate ? arrays.values_inout(db) : arrays.values_out(shape.K);
          arrays.kernels().bias_backward(out, arrays.values_in(dy), shape.N, shape.K, accumulate);
        };
        CHECK(error_ratio(on_device(type, call), on_cpu(type, call), 0, kBound) <= 1);
      }
    }
  }
}

TEST_CASE("bias_backward on the device: a frozen bias is no work") {
  DeviceArrays arrays(DType::f32, 0, false);
  arrays.kernels().bias_backward({}, arrays.values_in(random_floats(6, 1)), 2, 3, false);
  arrays.finish();
}

TEST_CASE("products on the device: short views and mixed types are refused") {
  DeviceArrays arrays(DType::f32, 0, false);
  const View x = arrays.out(6);
  Kernels& kernels = arrays.kernels();
  expect_error([&] { kernels.matmul(x, x, x, 2, 3, 4, false, false, false); }, "a has 6 elements, 8 are needed");
  expect_error([&] { kernels.matmul(x, arrays.in(std::vector<bf16>(6)), x, 2, 3, 2, false, false, false); },
               "a is bf16, must be f32");
  expect_error([&] { kernels.linear(x, x, x, arrays.out(2), 2, 2, 3); }, "bias has 2 elements, 3 are needed");
  expect_error([&] { kernels.bias_backward(x, x, 2, 4, false); }, "dy has 6 elements, 8 are needed");
  expect_error([&] { kernels.matmul(arrays.out<int32_t>(4), x, x, 2, 2, 2, false, false, false); }, "f32 or bf16");
}

}  // namespace
}  // namespace trencadis::test
