// Who computes attention: the choice in CudaOptions, and cuDNN's kernels against this project's, in bf16.
//
// Where cuDNN is not built in (the simulator, machines without it) the cases that need it say so and check nothing more.
#include "attention_problem.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/cudnn/sdpa.h"

namespace trencadis::test {
namespace {

using Floats = std::vector<float>;

// A tensor of bf16 on the device, and back.
Tensor to_bf16(Context& context, const Floats& values) {
  const auto n = static_cast<int64_t>(values.size());
  const std::vector<bf16> rounded(values.begin(), values.end());
  const Tensor there = Tensor::empty(context, {n}, DType::bf16);
  context.copy_from_host(there, rounded.data());
  return there;
}

Floats to_floats(Context& context, const Tensor& tensor) {
  std::vector<bf16> values(static_cast<size_t>(tensor.size()));
  context.copy_to_host(values.data(), tensor);
  return Floats(values.begin(), values.end());
}

struct Outcome {
  Floats o, lse, dqkv;
};

// Forward by one choice and backward by another, on the lse of the first.
Outcome attend(const AttentionProblem& p, AttentionChoice forward, AttentionChoice backward) {
  Context first(make_cuda_backend({.attention = forward, .poison = true}));
  Outcome outcome;
  outcome.lse.resize(static_cast<size_t>(p.rows()));
  {
    const Tensor qkv = to_bf16(first, p.qkv), o = Tensor::empty(first, {p.outputs()}, DType::bf16);
    const Tensor lse = Tensor::empty(first, {p.rows()}, DType::f32);
    const ConstView in = qkv.view();
    first.kernels().attention(o, lse, in, rest(in, p.k_at), rest(in, p.v_at), p.s);
    outcome.o = to_floats(first, o);
    first.copy_to_host(outcome.lse.data(), lse);
  }
  Context second(make_cuda_backend({.attention = backward, .poison = true}));
  const Tensor qkv = to_bf16(second, p.qkv), o = to_bf16(second, outcome.o), d_o = to_bf16(second, p.d_o);
  const Tensor lse = Tensor::from(second, outcome.lse, {p.rows()});
  const Tensor dqkv = to_bf16(second, Floats(p.qkv.size()));
  const View d = dqkv;
  const ConstView in = qkv.view();
  second.kernels().attention_backward(d, rest(d, p.k_at), rest(d, p.v_at), d_o.view(), o.view(), lse.view(), in,
                                      rest(in, p.k_at), rest(in, p.v_at), p.s);
  outcome.dqkv = to_floats(second, dqkv);
  return outcome;
}

bool no_cudnn() {
  if (!CudnnAttention::built()) MESSAGE("skipped: " << CudnnAttention::why_not_built());
  return !CudnnAttention::built();
}

TEST_CASE("attention by cuDNN: the values, lse and gradients of the native kernels, to the precision of bf16") {
  if (no_cudnn()) return;
  constexpr auto kNative = AttentionChoice::native, kCudnn = AttentionChoice::cudnn;
  // q, k, v in a fused buffer; one query and ragged tiles; shared key/value heads; head sizes at and between the bounds.
  for (const AttentionProblem& p :
       {AttentionProblem(1, 64, 1, 1, 64), AttentionProblem(2, 17, 2, 2, 64), AttentionProblem(2, 200, 4, 2, 64),
        AttentionProblem(1, 130, 6, 1, 128), AttentionProblem(1, 257, 3, 3, 40), AttentionProblem(3, 8, 2, 2, 32)}) {
    CAPTURE(p.s.T);
    CAPTURE(p.s.D);
    const Outcome native = attend(p, kNative, kNative), cudnn = attend(p, kCudnn, kCudnn);
    // Probabilities are rounded to bf16 before their product with v (2^-9 of each), and results once more; native rounds
    // the results only. lse is f32 in both, of scores summed in f32.
    CHECK(relative_error(cudnn.o, native.o) < 2.0 / 256);
    CHECK(relative_error(cudnn.lse, native.lse) < 1e-4);
    CHECK(relative_error(cudnn.dqkv, native.dqkv) < 4.0 / 256);
    // lse means the same to both: one's backward takes the other's forward.
    CHECK(relative_error(attend(p, kCudnn, kNative).dqkv, native.dqkv) < 4.0 / 256);
    CHECK(relative_error(attend(p, kNative, kCudnn).dqkv, native.dqkv) < 4.0 / 256);
  }
}

TEST_CASE("attention by cuDNN: the same bits each time, and automatic takes it") {
  if (no_cudnn()) return;
  const AttentionProblem p(2, 300, 4, 4, 64);
  const Outcome first = attend(p, AttentionChoice::cudnn, AttentionChoice::cudnn);
  for (const AttentionChoice choice : {AttentionChoice::cudnn, AttentionChoice::automatic}) {
    const Outcome again = attend(p, choice, choice);
    CHECK(again.o == first.o);
    CHECK(again.lse == first.lse);
    CHECK(again.dqkv == first.dqkv);
  }
}

TEST_CASE("attention by cuDNN: an error that names the reason, where it was asked for and cannot be") {
  if (!CudnnAttention::built()) {
    CHECK_THROWS_WITH_AS(make_cuda_backend({.attention = AttentionChoice::cudnn}),
                         doctest::Contains("this build has no cuDNN"), Error);
    return;
  }
  const auto refused = [](const AttentionProblem& p, const char* why) {
    expect_error([&] { attend(p, AttentionChoice::cudnn, AttentionChoice::cudnn); }, why);
  };
  refused(AttentionProblem(1, 8, 1, 1, 64, 0.1f), "cuDNN draws other masks");
  refused(AttentionProblem(1, 8, 2, 2, 20), "not all multiples of 8");
  Context context(make_cuda_backend({.attention = AttentionChoice::cudnn}));
  const Tensor x = Tensor::zeros(context, {64}), lse = Tensor::zeros(context, {1});
  const AttentionShape s = AttentionProblem(1, 1, 1, 1, 8).s;
  expect_error([&] { context.kernels().attention(x, lse, x.view(), x.view(), x.view(), s); }, "elements are f32");
}

TEST_CASE("attention, automatic: what cuDNN does not take is native, with its bits") {
  for (const AttentionProblem& p : {AttentionProblem(1, 17, 2, 2, 8, 0.3f), AttentionProblem(1, 17, 2, 1, 20)}) {
    const Outcome native = attend(p, AttentionChoice::native, AttentionChoice::native);
    const Outcome automatic = attend(p, AttentionChoice::automatic, AttentionChoice::automatic);
    CHECK(automatic.o == native.o);
    CHECK(automatic.lse == native.lse);
    CHECK(automatic.dqkv == native.dqkv);
  }
}

}  // namespace
}  // namespace trencadis::test
