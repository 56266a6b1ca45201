// Every op's gradient against finite differences: ragged shapes, sizes of 1, sequences that are no multiple of a tile,
// frozen parameters; and that wrong shapes are errors that say what does not fit.
#include "autograd/gradient_check.h"
#include "autograd/ops/tensor_ops.h"

namespace trencadis::test {
namespace {

using Variables = std::vector<Variable>;

// A parameter is absent, frozen or trained.
enum class Use { absent, frozen, trained };

TEST_CASE("linear") {
  struct Size {
    Shape x;
    int64_t K;
  };
  // One row, one feature, one output; a batch of two dimensions; sizes around the lanes and tiles of a matrix product.
  for (const auto& [shape, K] :
       {Size{{1, 1}, 1}, Size{{3, 5}, 2}, Size{{2, 7, 17}, 3}, Size{{65, 3}, 17}, Size{{5, 65}, 1}})
    for (const Use bias : {Use::absent, Use::frozen, Use::trained})
      for (const Use weight : {Use::frozen, Use::trained})
        for (const bool x_trained : {false, true}) {
          CAPTURE(to_string(shape));
          CAPTURE(K);
          std::vector<GradientInput> inputs = {{"x", shape, x_trained},
                                               {"weight", {K, shape.back()}, weight == Use::trained}};
          if (bias != Use::absent) inputs.push_back({"bias", {K}, bias == Use::trained});
          check_gradient(inputs, [](Context&, const Variables& in) -> Variables {
            return {linear(in[0], in[1], in.size() > 2 ? in[2] : Variable())};
          });
        }
}

TEST_CASE("embedding") {
  struct Size {
    int64_t B, T, C, V, positions;
  };
  // V small: ids repeat, and rows are hit by several tokens; V large: rows that no token hits; more positions than T.
  for (const auto& [B, T, C, V, positions] :
       {Size{1, 1, 1, 1, 1}, Size{2, 3, 5, 2, 3}, Size{3, 7, 17, 40, 11}, Size{1, 65, 3, 5, 65}})
    for (const bool wte : {false, true})
      for (const bool wpe : {false, true}) {
        CAPTURE(T);
        const std::vector<int32_t> tokens = random_ints(B * T, 7, static_cast<int32_t>(V));
        const Shape shape = {B, T};
        check_gradient({{"wte", {V, C}, wte}, {"wpe", {positions, C}, wpe}},
                       [=](Context& context, const Variables& in) -> Variables {
                         return {embedding(Tensor::from(context, tokens, shape), in[0], in[1])};
                       });
      }
}

TEST_CASE("layer_norm") {
  // One channel: the output is beta, whatever x.
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 1}, Shape{1, 3}, Shape{2, 3, 7}, Shape{7, 17}, Shape{3, 65}})
    for (const bool gamma : {false, true})
      for (const bool beta : {false, true}) {
        CAPTURE(to_string(shape));
        CAPTURE(gamma);
        CAPTURE(beta);
        check_gradient({{"x", shape}, {"gamma", {shape.back()}, gamma, 0.5f, 1}, {"beta", {shape.back()}, beta}},
                       [](Context&, const Variables& in) -> Variables { return {layer_norm(in[0], in[1], in[2])}; });
      }
}

TEST_CASE("residual_layer_norm: both outputs, or one of them, go on") {
  for (const Shape& shape : {Shape{1, 1}, Shape{1, 3}, Shape{2, 3, 7}, Shape{7, 17}, Shape{3, 65}})
    for (const bool trained : {false, true})
      for (const int outputs : {1, 2, 3}) {
        CAPTURE(to_string(shape));
        CAPTURE(trained);
        CAPTURE(outputs);
        if (!(outputs & 2) && trained) continue;  // gamma and beta are not read: checked below
        check_gradient({{"x", shape},
                        {"r", shape},
                        {"gamma", {shape.back()}, trained, 0.5f, 1},
                        {"beta", {shape.back()}, trained}},
                       [=](Context&, const Variables& in) -> Variables {
                         const auto [sum, normed] = residual_layer_norm(in[0], in[1], in[2], in[3]);
                         Variables used;
                         if (outputs & 1) used.push_back(sum);
                         if (outputs & 2) used.push_back(normed);
                         return used;
                       });
      }
}

TEST_CASE("residual_layer_norm: parameters that only an unused output reads get no gradient") {
  Context context(make_cpu_backend({.poison = true}));
  Variable x(Tensor::from(context, random_floats(6, 1), {2, 3}), true);
  Variable gamma(Tensor::from(context, random_floats(3, 2), {3}), true), beta(gamma.value(), true);
  const Variable sum = residual_layer_norm(x, x, gamma, beta).sum;
  backward({Edge(sum)}, {Tensor::from(context, random_floats(6, 3), {2, 3})});
  CHECK_FALSE(gamma.gradient_written());
  CHECK_FALSE(beta.gradient_written());
  CHECK(x.take_gradient().defined());
}

TEST_CASE("add") {
  for (const Shape& shape : {Shape{1}, Shape{3, 1}, Shape{2, 7, 5}, Shape{65}})
    for (const bool b : {false, true}) {
      CAPTURE(to_string(shape));
      check_gradient({{"a", shape}, {"b", shape, b}},
                     [](Context&, const Variables& in) -> Variables { return {add(in[0], in[1])}; });
    }
}

TEST_CASE("bias_gelu") {
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 1}, Shape{1, 17}, Shape{2, 3, 7}, Shape{65, 3}, Shape{3, 65}})
    for (const bool bias : {false, true})
      for (const bool x : {false, true}) {
        CAPTURE(to_string(shape));
        // Twice the range: both flat ends and the bend between them.
        check_gradient({{"x", shape, x, 2}, {"bias", {shape.back()}, bias}},
                       [](Context&, const Variables& in) -> Variables { return {bias_gelu(in[0], in[1])}; });
      }
}

TEST_CASE("causal_self_attention") {
  struct Size {
    int64_t B, H, D;
  };
  for (const int64_t T : {1, 3, 7, 17, 65})
    for (const auto& [B, H, D] : {Size{1, 1, 1}, Size{2, 3, 5}, Size{1, 2, 8}})
      for (const float probability : {0.0f, 0.4f}) {
        CAPTURE(T);
        CAPTURE(H);
        CAPTURE(D);
        CAPTURE(probability);
        DropoutMask mask;
        mask.probability = probability;
        mask.seed = 5;
        mask.first_sample = 3;
        check_gradient({{"qkv", {B, T, 3 * H * D}}}, [=, heads = H](Context&, const Variables& in) -> Variables {
          return {causal_self_attention(in[0], heads, mask)};
        });
      }
}

TEST_CASE("dropout") {
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 1}, Shape{2, 7, 5}, Shape{1, 65}, Shape{17, 3}})
    for (const float probability : {0.0f, 0.1f, 0.5f}) {
      CAPTURE(to_string(shape));
      CAPTURE(probability);
      DropoutMask mask;
      mask.probability = probability;
      mask.step = 9;
      check_gradient({{"x", shape}},
                     [=](Context&, const Variables& in) -> Variables { return {dropout(in[0], mask)}; });
    }
}

TEST_CASE("softmax_cross_entropy") {
  struct Size {
    int64_t N, V;
  };
  // One class: the loss is 0, whatever the logit.
  for (const auto& [N, V] : {Size{1, 1}, Size{3, 1}, Size{1, 7}, Size{7, 17}, Size{17, 65}, Size{65, 3}})
    for (const bool ignored : {false, true}) {
      CAPTURE(N);
      CAPTURE(V);
      CAPTURE(ignored);
      std::vector<int32_t> targets = random_ints(N, 3, static_cast<int32_t>(V));
      if (ignored)
        for (size_t i = 0; i < targets.size(); i += 2) targets[i] = -1;
      check_gradient({{"logits", {N, V}, true, 3}}, [=, rows = N](Context& context, const Variables& in) -> Variables {
        return {softmax_cross_entropy(in[0], Tensor::from(context, targets, {rows}))};
      });
    }
}

TEST_CASE("softmax_cross_entropy: logits that another backward reads are left as they are") {
  const std::vector<int32_t> targets = {4, 0, -1, 2};
  // Both save their results; the second one's are the loss's logits in another shape.
  check_gradient({{"x", {4, 5}}}, [=](Context& context, const Variables& in) -> Variables {
    return {softmax_cross_entropy(tanh(in[0]), Tensor::from(context, targets, {4}))};
  });
  check_gradient({{"x", {2, 10}}}, [=](Context& context, const Variables& in) -> Variables {
    return {softmax_cross_entropy(reshape(sigmoid(in[0]), {4, 5}), Tensor::from(context, targets, {4}))};
  });
}

TEST_CASE("a chain of all ops") {
  const int64_t B = 2, T = 5, C = 6, V = 11, heads = 2;
  const std::vector<int32_t> ids = random_ints(B * T, 1, V), targets = random_ints(B * T, 2, V);
  DropoutMask mask;
  mask.probability = 0.3f;
  check_gradient(
      {{"wte", {V, C}},
       {"wpe", {T, C}},
       {"gamma", {C}, true, 0.5f, 1},
       {"beta", {C}},
       {"w_qkv", {3 * C, C}, true, 0.5f},
       {"b_qkv", {3 * C}},
       {"w_fc", {2 * C, C}, true, 0.5f},
       {"b_fc", {2 * C}},
       {"w_proj", {C, 2 * C}, true, 0.5f}},
      [=](Context& context, const Variables& in) -> Variables {
        const Variable x = embedding(Tensor::from(context, ids, {B, T}), in[0], in[1]);
        const Variable attended = causal_self_attention(linear(layer_norm(x, in[2], in[3]), in[4], in[5]), heads, mask);
        const auto [y, normed] = residual_layer_norm(x, dropout(attended, mask), in[2], in[3]);
        const Variable z = add(y, linear(bias_gelu(linear(normed, in[6]), in[7]), in[8]));
        return {softmax_cross_entropy(linear(z, in[0]), Tensor::from(context, targets, {B, T}))};  // tied head
      });
}

TEST_CASE("norms that share gamma but not beta") {
  // The kernel has one accumulate flag for both gradients; gamma's is written twice, each beta's once.
  check_gradient({{"x", {3, 7}}, {"gamma", {7}, true, 0.5f, 1}, {"beta 1", {7}}, {"beta 2", {7}}},
                 [](Context&, const Variables& in) -> Variables {
                   return {layer_norm(layer_norm(in[0], in[1], in[2]), in[1], in[3])};
                 });
}

TEST_CASE("wrong shapes are errors that name what does not fit") {
  Context context(make_cpu_backend());
  const auto variable = [&](Shape shape, const char* name) {
    return Variable(Tensor::zeros(context, std::move(shape)), true, name);
  };
  const Variable x = variable({2, 3, 4}, "x");
  expect_error([&] { linear(x, variable({5, 3}, "c_fc.weight")); }, "c_fc.weight has shape (5, 3)");
  expect_error([&] { linear(x, variable({5, 4}, "w"), variable({4}, "c_fc.bias")); }, "c_fc.bias has shape (4)");
  expect_error([&] { layer_norm(x, variable({3}, "gamma"), variable({4}, "beta")); }, "gamma (3)");
  expect_error(
      [&] {
        residual_layer_norm(x, variable({2, 3}, "r"), variable({4}, "g"), variable({4}, "b"));
      },
      "(2, 3)");
  expect_error([&] { add(x, variable({2, 12}, "y")); }, "(2, 12)");
  expect_error([&] { bias_gelu(x, variable({3}, "c_fc.bias")); }, "c_fc.bias has shape (3)");
  expect_error([&] { causal_self_attention(variable({1, 2, 12}, "qkv"), 3); }, "12 channels");
  expect_error([&] { causal_self_attention(variable({1, 2, 13}, "qkv"), 1); }, "13 channels");
  expect_error([&] { softmax_cross_entropy(x, Tensor::zeros(context, {5}, DType::i32)); }, "targets (5)");
  const Tensor ids = Tensor::zeros(context, {2, 3}, DType::i32);
  expect_error([&] { embedding(ids, variable({9, 4}, "wte"), variable({2, 4}, "wpe")); }, "raise block_size");
  expect_error([&] { embedding(ids, variable({9, 4}, "wte"), variable({3, 5}, "wpe")); }, "wpe has 5");
  DropoutMask always;
  always.probability = 1;
  expect_error([&] { dropout(x, always); }, "not in [0, 1)");
}

}  // namespace
}  // namespace trencadis::test
