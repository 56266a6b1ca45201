// adamw and sgd on the device: one order of operations, hence the CPU's bits.
#include "cuda_kernel_test.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

const std::vector<int64_t> kSizes = {1, 3, 4, 5, 255, 1031};

}  // namespace

TEST_CASE("adamw: f32 master, moments; parameter and gradient in either type") {
  for (DType type : kFloatTypes)
    for (int64_t n : kSizes)
      for (int64_t t : {1, 100}) {
        CAPTURE(n);
        const auto master = random_floats(n, 1), gradient = random_floats(n, 2, 0.1f), m = random_floats(n, 3, 0.1f);
        auto v = random_floats(n, 4, 0.01f);
        for (float& value : v) value = std::abs(value);
        const AdamWStep step{.lr = 0.01f, .weight_decay = 0.1f, .t = t, .grad_scale = 0.7f};
        const auto call = [&](auto& b) {
          View p = b.values_out(n), w = b.inout(master), first = b.inout(m), second = b.inout(v);
          b.kernels().adamw(p, w, first, second, b.values_in(gradient), step);
        };
        const Result got = on_device(type, call), want = on_cpu(type, call);
        for (size_t i = 0; i < 4; ++i) CHECK(same_values(got, want, i));
        CHECK(got.values(1) != master);
      }
}

TEST_CASE("adamw: the parameter may be the master itself; f32 parameters with bf16 gradients") {
  const int64_t n = 37;
  const auto master = random_floats(n, 5), gradient = random_floats(n, 6), zeros = std::vector<float>(37, 0.0f);
  const AdamWStep step{.lr = 0.01f};
  const auto call = [&](auto& b) {
    View w = b.inout(master), first = b.inout(zeros), second = b.inout(zeros);
    b.kernels().adamw(w, w, first, second, b.values_in(gradient), step);
  };
  for (DType type : kFloatTypes) CHECK(on_device(type, call).bytes() == on_cpu(type, call).bytes());
}

TEST_CASE("sgd, with momentum and without") {
  for (DType type : kFloatTypes)
    for (int64_t n : kSizes)
      for (float momentum : {0.0f, 0.9f})
        for (int64_t t : {1, 2}) {
          CAPTURE(n);
          CAPTURE(momentum);
          const auto master = random_floats(n, 7), gradient = random_floats(n, 8), before = random_floats(n, 9);
          const SgdStep step{.lr = 0.1f, .momentum = momentum, .weight_decay = 0.01f, .t = t, .grad_scale = 0.5f};
          const auto call = [&](auto& b) {
            View p = b.values_out(n), w = b.inout(master);
            // At t = 1 the velocity's memory is poison, and must not be read.
            View u;
            if (momentum != 0) u = t == 1 ? b.out(n) : b.inout(before);
            b.kernels().sgd(p, w, u, b.values_in(gradient), step);
          };
          const Result got = on_device(type, call), want = on_cpu(type, call);
          for (size_t i = 0; i < got.bytes().size(); ++i) CHECK(same_values(got, want, i));
        }
}

TEST_CASE("arguments that do not fit are refused") {
  const std::vector<float> two = {1, 2}, three = {1, 2, 3};
  on_device(DType::f32, [&](auto& b) {
    View p = b.inout(three), m = b.inout(three), v = b.inout(two);
    const View g = b.in(three);
    expect_error([&] { b.kernels().adamw(p, p, m, v, g, AdamWStep{}); }, "adamw: v has 2 elements");
    expect_error([&] { b.kernels().adamw(p, p, m, m, g, AdamWStep{.t = 0}); }, "step number 0");
    expect_error([&] { b.kernels().sgd(p, p, View(), g, SgdStep{.momentum = 0.9f}); }, "sgd: u");
  });
}
