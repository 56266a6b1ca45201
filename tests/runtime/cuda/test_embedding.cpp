// embedding and embedding_backward on the device. Sums have the CPU's order: the same bits, and rounded once for bf16.
#include "cuda_kernel_test.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

struct Shapes {
  int64_t B, T, C, V, positions;
};
// Rows that are unused and rows that are hit often; less than one tile of 256 tokens to sort, one tile, one and a part,
// two and a part (an odd number of runs to merge).
const std::vector<Shapes> kShapes = {{1, 1, 1, 1, 1},      {2, 3, 5, 4, 3},    {3, 7, 16, 50, 9},     {4, 64, 4, 3, 64},
                                     {2, 33, 40, 257, 64}, {3, 90, 3, 7, 100}, {6, 100, 1, 1000, 150}};

}  // namespace

TEST_CASE("embedding") {
  for (DType type : kFloatTypes)
    for (const Shapes& s : kShapes) {
      CAPTURE(s.C);
      const auto ids = random_ints(s.B * s.T, 1, static_cast<int32_t>(s.V));
      const auto wte = random_floats(s.V * s.C, 2), wpe = random_floats(s.positions * s.C, 3);
      const auto call = [&](auto& b) {
        View y = b.values_out(s.B * s.T * s.C);
        b.kernels().embedding(y, b.in(ids), b.values_in(wte), b.values_in(wpe), s.B, s.T, s.C, s.V);
      };
      CHECK(same_values(on_device(type, call), on_cpu(type, call)));
    }
}

TEST_CASE("embedding_backward writes or adds, each table by itself") {
  for (DType type : kFloatTypes)
    for (const Shapes& s : kShapes)
      for (int mode = 0; mode < 4; ++mode) {
        CAPTURE(s.T);
        CAPTURE(s.C);
        CAPTURE(mode);
        if (s.B * s.T > 256 && (mode == 1 || mode == 2)) continue;  // for time's sake
        const bool add_wte = mode & 1, add_wpe = mode & 2;
        const auto ids = random_ints(s.B * s.T, 4, static_cast<int32_t>(s.V));
        const auto dy = random_floats(s.B * s.T * s.C, 5);
        const auto wte_before = random_floats(s.V * s.C, 6), wpe_before = random_floats(s.positions * s.C, 7);
        const auto call = [&](auto& b) {
          View te = add_wte ? b.values_inout(wte_before) : b.values_out(s.V * s.C);
          View pe = add_wpe ? b.values_inout(wpe_before) : b.values_out(s.positions * s.C);
          b.kernels().embedding_backward(te, pe, b.in(ids), b.values_in(dy), s.B, s.T, s.C, s.V, s.positions, add_wte,
                                         add_wpe);
        };
        const Result got = on_device(type, call), want = on_cpu(type, call);
        CHECK(same_values(got, want, 0));
        CHECK(same_values(got, want, 1));
      }
}

TEST_CASE("rows wider than a block, one token for all") {
  const int64_t N = 11, C = 1100, V = 3;  // 275 groups of f32: three blocks of 128
  const std::vector<int32_t> ids(static_cast<size_t>(N), 1);
  const auto dy = random_floats(N * C, 8);
  for (DType type : kFloatTypes) {
    const auto call = [&](auto& b) {
      View te = b.values_out(V * C);
      b.kernels().embedding_backward(te, View(), b.in(ids), b.values_in(dy), 1, N, C, V, N, false, false);
    };
    CHECK(same_values(on_device(type, call), on_cpu(type, call)));
  }
}

TEST_CASE("a frozen table is left out") {
  const std::vector<int32_t> ids = {1, 0};
  const std::vector<float> dy = {1, 2, 3, 4};
  const auto positions_only = [&](auto& b) {
    View pe = b.values_out(4);
    b.kernels().embedding_backward(View(), pe, b.in(ids), b.values_in(dy), 1, 2, 2, 2, 2, false, false);
  };
  const auto tokens_only = [&](auto& b) {
    View te = b.values_out(4);
    b.kernels().embedding_backward(te, View(), b.in(ids), b.values_in(dy), 1, 2, 2, 2, 2, false, false);
  };
  CHECK(on_device(DType::f32, positions_only).values() == dy);
  CHECK(on_device(DType::f32, tokens_only).values() == std::vector<float>{3, 4, 1, 2});
}

TEST_CASE("an id outside the vocabulary gives NaN, and its gradient goes nowhere") {
  const std::vector<int32_t> ids = {0, 4, -1, 3};
  const std::vector<float> wte = {1, 2, 3, 4}, wpe = {10, 20, 30, 40}, dy = {1, 2, 4, 8};
  const auto y = on_device(DType::f32, [&](auto& b) {
                   View out = b.values_out(4);
                   b.kernels().embedding(out, b.in(ids), b.values_in(wte), b.values_in(wpe), 1, 4, 1, 4);
                 }).values();
  CHECK(y[0] == 11);
  CHECK(std::isnan(y[1]));
  CHECK(std::isnan(y[2]));
  CHECK(y[3] == 44);
  const Result got = on_device(DType::f32, [&](auto& b) {
    View te = b.values_out(4), pe = b.values_out(4);
    b.kernels().embedding_backward(te, pe, b.in(ids), b.values_in(dy), 1, 4, 1, 4, 4, false, false);
  });
  CHECK(got.values(0) == std::vector<float>{1, 0, 0, 8});
}

TEST_CASE("sequences beyond the positions and tables that are too small are refused") {
  const std::vector<int32_t> ids = {0, 1};
  const std::vector<float> six(6, 1.0f), twelve(12, 1.0f);
  on_device(DType::f32, [&](auto& b) {
    View y = b.inout(six), wte = b.inout(twelve), wpe = b.inout(six);
    const View tokens = b.in(ids);
    expect_error([&] { b.kernels().embedding(y, tokens, wte, wpe, 1, 2, 3, 5); }, "embedding: wte has 12 elements");
    expect_error([&] { b.kernels().embedding_backward(wte, wpe, tokens, y, 1, 2, 3, 4, 1, false, false); },
                 "only 1 positions");
  });
}
