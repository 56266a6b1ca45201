// embedding and embedding_backward. Sums have a fixed order, so f32 loops in that order give the very bits.
#include "kernel_test.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

struct Shapes {
  int64_t B, T, C, V, positions;
};
// Vocabularies both larger and smaller than the number of tokens: rows that are unused, rows that are hit many times.
const std::vector<Shapes> kShapes = {{1, 1, 1, 1, 1},    {2, 3, 5, 4, 3},       {3, 7, 16, 50, 9},
                                     {4, 33, 40, 3, 64}, {2, 64, 200, 257, 64}, {1, 5, 129, 1000, 8}};
size_t at(int64_t i) { return static_cast<size_t>(i); }

}  // namespace

TEST_CASE("embedding") {
  for (const Shapes& s : kShapes) {
    CAPTURE(s.C);
    const auto ids = random_ints(s.B * s.T, 1, static_cast<int32_t>(s.V));
    const auto wte = random_floats(s.V * s.C, 2), wpe = random_floats(s.positions * s.C, 3);
    std::vector<float> want(at(s.B * s.T * s.C));
    for (int64_t n = 0; n < s.B * s.T; ++n)
      for (int64_t c = 0; c < s.C; ++c)
        want[at(n * s.C + c)] = wte[at(ids[at(n)] * s.C + c)] + wpe[at(n % s.T * s.C + c)];
    CHECK(same_bits([&](Buffers& b) {
            b.kernels().embedding(b.out(s.B * s.T * s.C), b.in(ids), b.in(wte), b.in(wpe), s.B, s.T, s.C, s.V);
          }).get() == want);
  }
}

TEST_CASE("embedding_backward writes or adds, each table by itself") {
  for (const Shapes& s : kShapes) {
    CAPTURE(s.C);
    const auto ids = random_ints(s.B * s.T, 4, static_cast<int32_t>(s.V));
    const auto dy = random_floats(s.B * s.T * s.C, 5);
    const auto wte_before = random_floats(s.V * s.C, 6), wpe_before = random_floats(s.positions * s.C, 7);
    for (int mode = 0; mode < 4; ++mode) {
      const bool add_wte = mode & 1, add_wpe = mode & 2;
      std::vector<float> dwte = add_wte ? wte_before : std::vector<float>(wte_before.size(), 0.0f);
      std::vector<float> dwpe = add_wpe ? wpe_before : std::vector<float>(wpe_before.size(), 0.0f);
      for (int64_t n = 0; n < s.B * s.T; ++n)
        for (int64_t c = 0; c < s.C; ++c) dwte[at(ids[at(n)] * s.C + c)] += dy[at(n * s.C + c)];
      for (int64_t t = 0; t < s.T; ++t)
        for (int64_t c = 0; c < s.C; ++c) {
          float sum = 0;
          for (int64_t b = 0; b < s.B; ++b) sum += dy[at((b * s.T + t) * s.C + c)];
          dwpe[at(t * s.C + c)] += sum;
        }
      const Outputs got = same_bits([&](Buffers& b) {
        View te = add_wte ? b.inout(wte_before) : b.out(s.V * s.C);
        View pe = add_wpe ? b.inout(wpe_before) : b.out(s.positions * s.C);
        b.kernels().embedding_backward(te, pe, b.in(ids), b.in(dy), s.B, s.T, s.C, s.V, s.positions, add_wte, add_wpe);
      });
      CHECK(got.get(0) == dwte);
      CHECK(got.get(1) == dwpe);
    }
  }
}

TEST_CASE("a frozen table is left out") {
  const std::vector<int32_t> ids = {1, 0};
  const std::vector<float> dy = {1, 2, 3, 4};
  CHECK(same_bits([&](Buffers& b) {
          b.kernels().embedding_backward(View(), b.out(4), b.in(ids), b.in(dy), 1, 2, 2, 2, 2, false, false);
        }).get() == dy);
  CHECK(same_bits([&](Buffers& b) {
          b.kernels().embedding_backward(b.out(4), View(), b.in(ids), b.in(dy), 1, 2, 2, 2, 2, false, false);
        }).get() == std::vector<float>{3, 4, 1, 2});
}

TEST_CASE("tokens outside the vocabulary and sequences beyond the positions are refused") {
  Context context(make_cpu_backend());
  Kernels& k = context.kernels();
  const Tensor y = Tensor::zeros(context, {1, 2, 3}), wte = Tensor::zeros(context, {4, 3}),
               wpe = Tensor::zeros(context, {2, 3});
  for (int32_t bad : {4, -1}) {
    const Tensor ids = Tensor::from(context, std::vector<int32_t>{0, bad}, {1, 2});
    expect_error([&] { k.embedding(y, ids, wte, wpe, 1, 2, 3, 4); }, "token 1 is " + std::to_string(bad));
    expect_error([&] { k.embedding_backward(wte, wpe, ids, y, 1, 2, 3, 4, 2, false, false); }, "vocabulary of 4");
  }
  const Tensor ids = Tensor::from(context, std::vector<int32_t>{0, 1}, {1, 2});
  expect_error([&] { k.embedding(y, ids, wte, wpe, 1, 2, 3, 5); }, "embedding: wte has 12 elements");
  expect_error([&] { k.embedding_backward(wte, wpe, ids, y, 1, 2, 3, 4, 1, false, false); }, "only 1 positions");
}
