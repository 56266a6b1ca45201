// layer_norm, residual_layer_norm, and every rung of the ladder of the backward pass, against the CPU's.
#include "cuda_kernel_test.h"
#include "runtime/cuda/ladder/layer_norm_backward.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

struct Rows {
  int64_t N, C;
};
// C: less than a group; no multiple of one; one warp and its neighbours. N: one row, a partial block, several chunks.
const std::vector<Rows> kRows = {{1, 1}, {1, 40}, {3, 5}, {9, 64}, {33, 36}, {5, 130}, {2, 500}};
// And for the fast rung, every size of its blocks: up to 512, 1024, 2048, 4096 columns of f32 and twice that of bf16.
const std::vector<Rows> kWideRows = {{9, 520}, {3, 1030}, {2, 2052}, {1, 4100}};
constexpr float kEps = 1e-5f;

// Sums of C numbers in another order than the CPU's.
constexpr double kBound = 2e-6;

struct Moments {
  std::vector<float> mean, rstd;
};

// Of rows as the element type has them.
Moments moments_of(DType type, const std::vector<float>& x, const Rows& r) {
  const std::vector<float> ones(static_cast<size_t>(r.C), 1.0f);
  const Result result = on_cpu(type, [&](auto& b) {
    View y = b.values_out(r.N * r.C), mean = b.out(r.N), rstd = b.out(r.N);
    b.kernels().layer_norm(y, mean, rstd, b.values_in(x), b.in(ones), b.in(ones), r.N, r.C, kEps);
  });
  return {result.values(1), result.values(2)};
}

double largest(const std::vector<float>& x) { return static_cast<double>(*std::max_element(x.begin(), x.end())); }

}  // namespace

TEST_CASE("layer_norm") {
  for (DType type : kFloatTypes)
    for (const Rows& r : kRows) {
      CAPTURE(r.N);
      CAPTURE(r.C);
      auto x = random_floats(r.N * r.C, 1, 3);
      for (float& value : x) value += 5;  // a mean that is large beside the deviation
      const auto gamma = random_floats(r.C, 2), beta = random_floats(r.C, 3);
      const auto call = [&](auto& b) {
        View y = b.values_out(r.N * r.C), mean = b.out(r.N), rstd = b.out(r.N);
        b.kernels().layer_norm(y, mean, rstd, b.values_in(x), b.values_in(gamma), b.values_in(beta), r.N, r.C, kEps);
      };
      const Result got = on_device(type, call), want = on_cpu(type, call);
      CHECK(error_ratio(got, want, 0, kBound, 1 + largest(want.values(2))) <= 1);
      CHECK(error_ratio(got, want, 1, kBound) <= 1);
      CHECK(error_ratio(got, want, 2, kBound) <= 1);
    }
}

TEST_CASE("residual_layer_norm: s is the sum, rounded once, and the rest is layer_norm(s) to the bit") {
  for (DType type : kFloatTypes)
    for (const Rows& r : kRows) {
      CAPTURE(r.N);
      CAPTURE(r.C);
      const auto x = random_floats(r.N * r.C, 4), residual = random_floats(r.N * r.C, 5);
      const auto gamma = random_floats(r.C, 6), beta = random_floats(r.C, 7);
      const auto call = [&](auto& b) {
        View s = b.values_out(r.N * r.C), y = b.values_out(r.N * r.C), mean = b.out(r.N), rstd = b.out(r.N);
        b.kernels().residual_layer_norm(s, y, mean, rstd, b.values_in(x), b.values_in(residual), b.values_in(gamma),
                                        b.values_in(beta), r.N, r.C, kEps);
      };
      const Result got = on_device(type, call);
      CHECK(same_values(got, on_cpu(type, call), 0));
      const auto sum = got.values(0);
      const Result alone = on_device(type, [&](auto& b) {
        View y = b.values_out(r.N * r.C), mean = b.out(r.N), rstd = b.out(r.N);
        b.kernels().layer_norm(y, mean, rstd, b.values_in(sum), b.values_in(gamma), b.values_in(beta), r.N, r.C, kEps);
      });
      for (size_t i = 0; i < 3; ++i) CHECK(got.bytes()[i + 1] == alone.bytes()[i]);
    }
}

TEST_CASE("layer_norm_backward: every rung") {
  using Rung = void (*)(cudaStream_t, Allocator&, const LayerNormBackward&);
  const auto member = [](DeviceArrays& b, const LayerNormBackward& c) {
    b.kernels().layer_norm_backward(c.dx, c.dgamma, c.dbeta, c.dy, c.x, c.mean, c.rstd, c.gamma, c.dresidual, c.N, c.C,
                                    c.accumulate);
  };
  // The member runs the fast rung.
  struct Named {
    std::string name;
    Rung rung;
  };
  const std::vector<Named> rungs = {{"naive", layer_norm_backward_naive},
                                    {"tiled", layer_norm_backward_tiled},
                                    {"fast", layer_norm_backward_fast},
                                    {"CudaKernels", nullptr}};
  std::vector<Rows> shapes = kRows;
  shapes.insert(shapes.end(), kWideRows.begin(), kWideRows.end());
  for (DType type : kFloatTypes)
    for (const Rows& r : shapes) {
      CAPTURE(r.N);
      CAPTURE(r.C);
      const int64_t size = r.N * r.C;
      const auto x = random_floats(size, 8), dy = random_floats(size, 9), residual = random_floats(size, 10);
      const auto gamma = random_floats(r.C, 11), before = random_floats(r.C, 12);
      const Moments m = moments_of(type, x, r);
      // run(arrays, call) for one mode: 0 writes; 1 adds, in place on dresidual; 2 has gamma and beta frozen.
      const auto make = [&](auto& b, int mode) {
        LayerNormBackward c;
        c.dx = mode == 1 ? b.values_inout(residual) : b.values_out(size);
        if (mode != 2) {
          c.dgamma = mode == 1 ? b.values_inout(before) : b.values_out(r.C);
          c.dbeta = mode == 1 ? b.values_inout(before) : b.values_out(r.C);
        }
        if (mode == 1) c.dresidual = c.dx;
        c.dy = b.values_in(dy);
        c.x = b.values_in(x);
        c.mean = b.in(m.mean);
        c.rstd = b.in(m.rstd);
        c.gamma = b.values_in(gamma);
        c.N = r.N;
        c.C = r.C;
        c.accumulate = mode == 1;
        return c;
      };
      const bool wide = r.C > 512;  // here the fast rung only, and one mode: they take the simulator long
      for (int mode : wide ? std::vector<int>{1} : std::vector<int>{0, 1, 2}) {
        CAPTURE(mode);
        const Result want = on_cpu(type, [&](auto& b) {
          const LayerNormBackward c = make(b, mode);
          b.kernels().layer_norm_backward(c.dx, c.dgamma, c.dbeta, c.dy, c.x, c.mean, c.rstd, c.gamma, c.dresidual, c.N,
                                          c.C, c.accumulate);
        });
        Result fast;
        for (const Named& named : rungs) {
          CAPTURE(named.name);
          if (named.rung != layer_norm_backward_fast && (wide || (!named.rung && mode != 1))) continue;
          const Result got = on_device(type, [&](DeviceArrays& b) {
            const LayerNormBackward c = make(b, mode);
            if (named.rung)
              named.rung(b.stream(), b.scratch(), c);
            else
              member(b, c);
          });
          // Terms of dx are as large as rstd (316 where C is 1); those of dgamma, dbeta reach sqrt(C) and add up.
          CHECK(error_ratio(got, want, 0, kBound, 1 + largest(m.rstd)) <= 1);
          if (mode != 2)
            for (size_t i : {size_t{1}, size_t{2}})
              CHECK(error_ratio(got, want, i, kBound, static_cast<double>(r.N)) <= 1);
          if (named.rung == layer_norm_backward_fast) fast = got;
          if (!named.rung) CHECK(got.bytes() == fast.bytes());
        }
      }
    }
}

TEST_CASE("a constant row has variance 0") {
  const std::vector<float> x(40, 3.0f), gamma(40, 1.0f), beta(40, 0.5f);
  for (DType type : kFloatTypes) {
    const Result got = on_device(type, [&](auto& b) {
      View y = b.values_out(40), mean = b.out(1), rstd = b.out(1);
      b.kernels().layer_norm(y, mean, rstd, b.values_in(x), b.values_in(gamma), b.values_in(beta), 1, 40, kEps);
    });
    CHECK(got.values(0) == beta);
    CHECK(got.values(1)[0] == 3);
    CHECK(got.values(2)[0] == doctest::Approx(1 / std::sqrt(1e-5)));
  }
}

TEST_CASE("arguments that do not fit are refused") {
  const std::vector<float> six(6, 1.0f), three(3, 1.0f), two(2, 1.0f);
  on_device(DType::f32, [&](DeviceArrays& b) {
    View y = b.inout(six), mean = b.inout(two), rstd = b.inout(two);
    const View x = b.in(six), gamma = b.in(three), small = b.in(two);
    expect_error([&] { b.kernels().layer_norm(y, mean, rstd, x, small, gamma, 2, 3, kEps); },
                 "layer_norm: gamma has 2 elements");
    expect_error([&] { b.kernels().layer_norm_backward(y, gamma, small, x, x, mean, rstd, gamma, x, 2, 3, false); },
                 "layer_norm_backward: dbeta");
  });
}
