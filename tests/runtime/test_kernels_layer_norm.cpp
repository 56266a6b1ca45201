// layer_norm, residual_layer_norm and their backward pass against loops in double, and against finite differences.
#include "kernel_test.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

struct Rows {
  int64_t N, C;
};
const std::vector<Rows> kRows = {{1, 1}, {1, 2}, {3, 15}, {5, 16}, {4, 17}, {33, 40}, {7, 128}, {70, 384}, {2, 1000}};
constexpr float kEps = 1e-5f;

struct Reference {
  std::vector<double> y, mean, rstd;
};

size_t at(int64_t i) { return static_cast<size_t>(i); }

Reference layer_norm(const std::vector<float>& x, const std::vector<float>& gamma, const std::vector<float>& beta,
                     const Rows& r) {
  Reference out{std::vector<double>(x.size()), std::vector<double>(at(r.N)), std::vector<double>(at(r.N))};
  for (int64_t n = 0; n < r.N; ++n) {
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < r.C; ++c) mean += static_cast<double>(x[at(n * r.C + c)]);
    mean /= static_cast<double>(r.C);
    for (int64_t c = 0; c < r.C; ++c) variance += std::pow(static_cast<double>(x[at(n * r.C + c)]) - mean, 2);
    const double rstd = 1 / std::sqrt(variance / static_cast<double>(r.C) + static_cast<double>(kEps));
    for (int64_t c = 0; c < r.C; ++c)
      out.y[at(n * r.C + c)] =
          (static_cast<double>(x[at(n * r.C + c)]) - mean) * rstd * static_cast<double>(gamma[at(c)]) +
          static_cast<double>(beta[at(c)]);
    out.mean[at(n)] = mean;
    out.rstd[at(n)] = rstd;
  }
  return out;
}

// |xh| reaches sqrt(C) and rstd 300 (at C = 1 or 2); a mean of C values adds a few half ulps of 2^-24. A factor of ten
// above what was measured.
constexpr double kTolerance = 2e-6;

}  // namespace

TEST_CASE("layer_norm") {
  for (const Rows& r : kRows) {
    CAPTURE(r.N);
    CAPTURE(r.C);
    auto x = random_floats(r.N * r.C, 1, 3);
    for (float& value : x) value += 5;  // a mean that is large beside the deviation
    const auto gamma = random_floats(r.C, 2), beta = random_floats(r.C, 3);
    const Reference want = layer_norm(x, gamma, beta, r);
    const Outputs got = same_bits([&](Buffers& b) {
      View y = b.out(r.N * r.C), mean = b.out(r.N), rstd = b.out(r.N);
      b.kernels().layer_norm(y, mean, rstd, b.in(x), b.in(gamma), b.in(beta), r.N, r.C, kEps);
    });
    CHECK(relative_error(got.get(1), want.mean) <= kTolerance);
    CHECK(relative_error(got.get(2), want.rstd) <= kTolerance);
    // An error of half an ulp of x (up to 8) in the mean moves y by that times rstd.
    const double largest_rstd = *std::max_element(want.rstd.begin(), want.rstd.end());
    CHECK(max_error(got.get(0), want.y) <= kTolerance * (1 + largest_rstd));
  }
}

TEST_CASE("residual_layer_norm adds, then normalises the same way") {
  for (const Rows& r : kRows) {
    CAPTURE(r.N);
    CAPTURE(r.C);
    const auto x = random_floats(r.N * r.C, 4), residual = random_floats(r.N * r.C, 5);
    const auto gamma = random_floats(r.C, 6), beta = random_floats(r.C, 7);
    std::vector<float> sum(x);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += residual[i];
    const Outputs got = same_bits([&](Buffers& b) {
      View s = b.out(r.N * r.C), y = b.out(r.N * r.C), mean = b.out(r.N), rstd = b.out(r.N);
      b.kernels().residual_layer_norm(s, y, mean, rstd, b.in(x), b.in(residual), b.in(gamma), b.in(beta), r.N, r.C,
                                      kEps);
    });
    const Outputs two_steps = same_bits([&](Buffers& b) {
      View y = b.out(r.N * r.C), mean = b.out(r.N), rstd = b.out(r.N);
      b.kernels().layer_norm(y, mean, rstd, b.in(sum), b.in(gamma), b.in(beta), r.N, r.C, kEps);
    });
    CHECK(got.get(0) == sum);
    for (size_t i = 0; i < 3; ++i) CHECK(got.bytes()[i + 1] == two_steps.bytes()[i]);
  }
}

TEST_CASE("layer_norm_backward") {
  for (const Rows& r : kRows) {
    CAPTURE(r.N);
    CAPTURE(r.C);
    const int64_t size = r.N * r.C;
    const auto x = random_floats(size, 8), dy = random_floats(size, 9), residual = random_floats(size, 10);
    const auto gamma = random_floats(r.C, 11), before = random_floats(r.C, 12);
    const Reference forward = layer_norm(x, gamma, gamma, r);
    const std::vector<float> mean(forward.mean.begin(), forward.mean.end()),
        rstd(forward.rstd.begin(), forward.rstd.end());

    std::vector<double> dx(at(size)), dgamma(at(r.C), 0), dbeta(at(r.C), 0);
    for (int64_t n = 0; n < r.N; ++n) {
      const double mu = static_cast<double>(mean[at(n)]), scale = static_cast<double>(rstd[at(n)]);
      double mean_g = 0, mean_g_xh = 0;
      for (int pass = 0; pass < 2; ++pass)
        for (int64_t c = 0; c < r.C; ++c) {
          const size_t i = at(n * r.C + c);
          const double xh = (static_cast<double>(x[i]) - mu) * scale, d = static_cast<double>(dy[i]);
          const double g = d * static_cast<double>(gamma[at(c)]);
          if (pass == 0) {
            mean_g += g / static_cast<double>(r.C);
            mean_g_xh += g * xh / static_cast<double>(r.C);
            dgamma[at(c)] += d * xh;
            dbeta[at(c)] += d;
          } else {
            dx[i] = scale * (g - mean_g - xh * mean_g_xh);
          }
        }
    }
    std::vector<double> dx_residual(dx);
    for (size_t i = 0; i < dx.size(); ++i) dx_residual[i] += static_cast<double>(residual[i]);
    const double largest_rstd = *std::max_element(forward.rstd.begin(), forward.rstd.end());

    const Outputs plain = same_bits([&](Buffers& b) {
      View out = b.out(size), dg = b.out(r.C), db = b.out(r.C);
      b.kernels().layer_norm_backward(out, dg, db, b.in(dy), b.in(x), b.in(mean), b.in(rstd), b.in(gamma), ConstView(),
                                      r.N, r.C, false);
    });
    CHECK(max_error(plain.get(0), dx) <= kTolerance * (1 + largest_rstd));
    CHECK(max_error(plain.get(1), dgamma) <= kTolerance * static_cast<double>(r.N + 1));
    CHECK(max_error(plain.get(2), dbeta) <= kTolerance * static_cast<double>(r.N + 1));

    // In place on dresidual, and adding to gradients that are there.
    const Outputs adding = same_bits([&](Buffers& b) {
      View out = b.inout(residual), dg = b.inout(before), db = b.inout(before);
      b.kernels().layer_norm_backward(out, dg, db, b.in(dy), b.in(x), b.in(mean), b.in(rstd), b.in(gamma), out, r.N,
                                      r.C, true);
    });
    CHECK(max_error(adding.get(0), dx_residual) <= kTolerance * (2 + largest_rstd));
    for (size_t which : {1, 2}) {
      std::vector<float> sum(before);
      for (size_t c = 0; c < sum.size(); ++c) sum[c] += plain.get(which)[c];
      CHECK(adding.get(which) == sum);
    }
    // Frozen gamma and beta change nothing else.
    const Outputs frozen = same_bits([&](Buffers& b) {
      b.kernels().layer_norm_backward(b.out(size), View(), View(), b.in(dy), b.in(x), b.in(mean), b.in(rstd),
                                      b.in(gamma), ConstView(), r.N, r.C, false);
    });
    CHECK(frozen.bytes()[0] == plain.bytes()[0]);
  }
}

TEST_CASE("the formula of the backward pass is the derivative of the forward pass") {
  const Rows r{2, 19};
  const auto x = random_floats(r.N * r.C, 13), dy = random_floats(r.N * r.C, 14), gamma = random_floats(r.C, 15);
  const Reference forward = layer_norm(x, gamma, gamma, r);
  const std::vector<float> mean(forward.mean.begin(), forward.mean.end()),
      rstd(forward.rstd.begin(), forward.rstd.end());
  const auto dx = same_bits([&](Buffers& b) {
                    View out = b.out(r.N * r.C), dg = b.out(r.C), db = b.out(r.C);
                    b.kernels().layer_norm_backward(out, dg, db, b.in(dy), b.in(x), b.in(mean), b.in(rstd), b.in(gamma),
                                                    ConstView(), r.N, r.C, false);
                  }).get();
  for (size_t i = 0; i < x.size(); ++i) {
    double loss[2], position[2];
    for (int side = 0; side < 2; ++side) {
      auto moved = x;
      moved[i] += side ? 0.01f : -0.01f;
      position[side] = static_cast<double>(moved[i]);
      const auto y = layer_norm(moved, gamma, gamma, r).y;
      loss[side] = 0;
      for (size_t j = 0; j < y.size(); ++j) loss[side] += y[j] * static_cast<double>(dy[j]);
    }
    // The central difference is off by the third derivative times 0.01^2 / 6.
    CHECK(static_cast<double>(dx[i]) ==
          doctest::Approx((loss[1] - loss[0]) / (position[1] - position[0])).epsilon(2e-3));
  }
}

TEST_CASE("a constant row has variance 0") {
  const std::vector<float> x(40, 3.0f), gamma(40, 1.0f), beta(40, 0.5f);
  const Outputs got = same_bits([&](Buffers& b) {
    View y = b.out(40), mean = b.out(1), rstd = b.out(1);
    b.kernels().layer_norm(y, mean, rstd, b.in(x), b.in(gamma), b.in(beta), 1, 40, kEps);
  });
  CHECK(got.get(0) == beta);
  CHECK(got.get(1)[0] == 3);
  CHECK(got.get(2)[0] == doctest::Approx(1 / std::sqrt(1e-5)));
}

TEST_CASE("arguments that do not fit are refused") {
  Context context(make_cpu_backend());
  const Tensor six = Tensor::zeros(context, {2, 3}), three = Tensor::zeros(context, {3}),
               two = Tensor::zeros(context, {2});
  Kernels& k = context.kernels();
  expect_error([&] { k.layer_norm(six, two, two, six, two, three, 2, 3, kEps); }, "layer_norm: gamma has 2 elements");
  expect_error([&] { k.residual_layer_norm(six, six, two, two, six, three, three, three, 2, 3, kEps); },
               "residual_layer_norm: r");
  expect_error([&] { k.layer_norm_backward(six, three, two, six, six, two, two, three, six, 2, 3, false); },
               "layer_norm_backward: dbeta");
}
