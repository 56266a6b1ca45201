// The simulated cuBLAS against sums written out in double.
#include <cublas_v2.h>
#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "sim_test.h"

using namespace trencadis::test;

namespace {

// Whole numbers below 8: exact in bf16, and so are products and sums of them in f32.
std::vector<float> whole_numbers(size_t n, uint32_t seed) {
  std::vector<float> values(n);
  for (float& x : values) x = static_cast<float>((seed = seed * 1664525 + 1013904223) >> 29) - 3;
  return values;
}

template <typename T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<float>& values) : size_(values.size()) {
    std::vector<T> host(size_);
    for (size_t i = 0; i < size_; ++i) host[i] = T(values[i]);
    ok(cudaMalloc(reinterpret_cast<void**>(&data_), size_ * sizeof(T)));
    ok(cudaMemcpy(data_, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~OnDevice() { cudaFree(data_); }
  T* data() { return data_; }
  std::vector<float> read() {
    std::vector<T> host(size_);
    ok(cudaMemcpy(host.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    std::vector<float> values(size_);
    for (size_t i = 0; i < size_; ++i) values[i] = float(host[i]);
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t size_;
};

template <typename T>
constexpr cudaDataType kType = sizeof(T) == 2 ? CUDA_R_16BF : CUDA_R_32F;

template <typename In, typename Out>
void compare(bool trans_a, bool trans_b, float alpha, float beta) {
  constexpr int m = 5, n = 3, k = 7, batch = 2, lda = 9, ldb = 8, ldc = 6;
  constexpr long long stride_a = lda * 9, stride_b = ldb * 8, stride_c = ldc * n;
  const auto a = whole_numbers(stride_a * batch, 1), b = whole_numbers(stride_b * batch, 2),
             c = whole_numbers(stride_c * batch, 3);
  OnDevice<In> a_there(a), b_there(b);
  OnDevice<Out> c_there(c);
  cublasHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  cublasSetStream(handle, stream);
  REQUIRE(cublasGemmStridedBatchedEx(handle, trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                                     m, n, k, &alpha, a_there.data(), kType<In>, lda, stride_a, b_there.data(),
                                     kType<In>, ldb, stride_b, &beta, c_there.data(), kType<Out>, ldc, stride_c, batch,
                                     CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
  ok(cudaStreamSynchronize(stream));
  cublasDestroy(handle);
  ok(cudaStreamDestroy(stream));

  std::vector<float> expected = c;
  for (int i = 0; i < batch; ++i)
    for (int row = 0; row < m; ++row)
      for (int column = 0; column < n; ++column) {
        double sum = 0;
        for (int x = 0; x < k; ++x)
          sum += double(a[size_t(i * stride_a + (trans_a ? row * lda + x : x * lda + row))]) *
                 double(b[size_t(i * stride_b + (trans_b ? x * ldb + column : column * ldb + x))]);
        float& out = expected[size_t(i * stride_c + column * ldc + row)];
        out = float(Out(float(alpha * sum + beta * out)));
      }
  CHECK(c_there.read() == expected);  // what lies between the columns too
}

}  // namespace

TEST_CASE_TEMPLATE("products agree with the sum, transposed or not", Types, std::pair<float, float>,
                   std::pair<__nv_bfloat16, float>, std::pair<__nv_bfloat16, __nv_bfloat16>) {
  for (const bool trans_a : {false, true})
    for (const bool trans_b : {false, true})
      for (const float beta : {0.0f, 1.0f, -2.0f})
        compare<typename Types::first_type, typename Types::second_type>(trans_a, trans_b, beta == 1 ? 1.0f : 0.5f,
                                                                         beta);
}

TEST_CASE("beta 0 does not read what was there; wrong arguments are refused") {
  OnDevice<float> one({1}), nan({NAN});
  cublasHandle_t handle = nullptr;
  REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  const float alpha = 2, beta = 0;
  const auto product = [&](int ld, cublasComputeType_t compute) {
    return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &alpha, one.data(), CUDA_R_32F, ld, one.data(),
                        CUDA_R_32F, 1, &beta, nan.data(), CUDA_R_32F, 1, compute, CUBLAS_GEMM_DEFAULT);
  };
  CHECK(product(0, CUBLAS_COMPUTE_32F) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(product(1, CUBLAS_COMPUTE_64F) == CUBLAS_STATUS_NOT_SUPPORTED);
  CHECK(product(1, CUBLAS_COMPUTE_32F_FAST_TF32) == CUBLAS_STATUS_SUCCESS);
  CHECK(nan.read() == std::vector<float>{2});
  cublasDestroy(handle);
}
