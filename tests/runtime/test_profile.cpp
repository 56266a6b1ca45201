// The profiler: what it counts is what the formulas say, and it changes nothing.
#include "kernel_test.h"
#include "runtime/profile.h"

namespace trencadis::test {

TEST_CASE("profile: calls, arithmetic and bytes are those of the formulas, and results are untouched") {
  Profile profile;
  Context plain(make_cpu_backend()), timed(make_profiling_backend(make_cpu_backend(), profile));
  const int64_t M = 5, N = 7, K = 3;
  const std::vector<float> a = random_floats(M * K, 1), b = random_floats(K * N, 2);
  std::vector<std::vector<float>> results;
  for (Context* context : {&plain, &timed}) {
    const Tensor x = Tensor::from(*context, a, {M, K}), y = Tensor::from(*context, b, {K, N});
    const Tensor c = Tensor::zeros(*context, {M, N});
    for (int i = 0; i < 3; ++i) context->kernels().matmul(c, x, y, M, N, K, false, false, i > 0);
    context->kernels().add(c, c, c);
    results.push_back(c.to_vector());
  }
  CHECK(results[0] == results[1]);

  const std::vector<Profile::Row> rows = profile.rows();
  const auto row = [&](const std::string& kernel) {
    for (const Profile::Row& r : rows)
      if (r.kernel == kernel) return r;
    return Profile::Row{};
  };
  CHECK(row("matmul").calls == 3);
  CHECK(row("matmul").flops == 3 * 2.0 * M * N * K);
  CHECK(row("matmul").bytes == 4.0 * (3 * (M * K + K * N) + M * N * (1 + 2 + 2)));
  CHECK(row("matmul").seconds > 0);
  CHECK(row("add").calls == 1);
  CHECK(row("add").bytes == 12.0 * M * N);
  CHECK(row("add").flops == 0);
  for (size_t i = 1; i < rows.size(); ++i) CHECK(rows[i - 1].seconds >= rows[i].seconds);
  profile.clear();
  CHECK(profile.rows().empty());
}

TEST_CASE("profile: attention counts the causal half") {
  Profile profile;
  Context context(make_profiling_backend(make_cpu_backend(), profile));
  AttentionShape s;
  s.B = 2, s.T = 5, s.H = s.H_kv = 3, s.D = 4;
  s.q_stride = s.k_stride = s.v_stride = s.o_stride = s.H * s.D;
  const int64_t n = s.B * s.T * s.H * s.D;
  const Tensor q = Tensor::from(context, random_floats(n, 3), {n}), o = Tensor::zeros(context, {n}),
               lse = Tensor::zeros(context, {s.B * s.H * s.T});
  context.kernels().attention(o, lse, q, q, q, s);
  // For each head and query i: two dot products or sums over i + 1 keys of D elements, a multiplication and an addition each.
  double flops = 0;
  for (int64_t i = 0; i < s.T; ++i) flops += static_cast<double>(s.B * s.H * 2 * 2 * (i + 1) * s.D);
  for (const Profile::Row& row : profile.rows())
    if (row.kernel == "attention") CHECK(row.flops == flops);
}

}  // namespace trencadis::test
