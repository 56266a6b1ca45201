#include "runtime/cpu/stream_kernels.h"

namespace trencadis {

namespace {

class StreamKernels final : public Kernels {
 public:
  StreamKernels(Stream& stream, std::shared_ptr<Kernels> inner) : stream_(stream), inner_(std::move(inner)) {}

  void zero(View x) override {
    defer("zero", [=](Kernels& k) { k.zero(x); });
  }
  void copy(View y, ConstView x) override {
    defer("copy", [=](Kernels& k) { k.copy(y, x); });
  }
  void cast(View y, ConstView x) override {
    defer("cast", [=](Kernels& k) { k.cast(y, x); });
  }
  void add(View y, ConstView x) override {
    defer("add", [=](Kernels& k) { k.add(y, x); });
  }
  void add(View y, ConstView a, ConstView b) override {
    defer("add", [=](Kernels& k) { k.add(y, a, b); });
  }
  void fill(View x, float value) override {
    defer("fill", [=](Kernels& k) { k.fill(x, value); });
  }
  void normal(View x, float stddev, uint64_t key, int64_t first) override {
    defer("normal", [=](Kernels& k) { k.normal(x, stddev, key, first); });
  }

  void matmul(View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K, bool trans_a, bool trans_b,
              bool accumulate) override {
    defer("matmul", [=](Kernels& k) { k.matmul(c, a, b, M, N, K, trans_a, trans_b, accumulate); });
  }
  void linear(View y, ConstView x, ConstView w, ConstView bias, int64_t N, int64_t C, int64_t K) override {
    defer("linear", [=](Kernels& k) { k.linear(y, x, w, bias, N, C, K); });
  }
  void bias_backward(View db, ConstView dy, int64_t N, int64_t K, bool accumulate) override {
    defer("bias_backward", [=](Kernels& k) { k.bias_backward(db, dy, N, K, accumulate); });
  }

  void embedding(View y, ConstView ids, ConstView wte, ConstView wpe, int64_t B, int64_t T, int64_t C,
                 int64_t V) override {
    defer("embedding", [=](Kernels& k) { k.embedding(y, ids, wte, wpe, B, T, C, V); });
  }
  void embedding_backward(View dwte, View dwpe, ConstView ids, ConstView dy, int64_t B, int64_t T, int64_t C, int64_t V,
                          int64_t positions, bool accumulate_wte, bool accumulate_wpe) override {
    defer("embedding_backward", [=](Kernels& k) {
      k.embedding_backward(dwte, dwpe, ids, dy, B, T, C, V, positions, accumulate_wte, accumulate_wpe);
    });
  }

  void layer_norm(View y, View mean, View rstd, ConstView x, ConstView gamma, ConstView beta, int64_t N, int64_t C,
                  float eps) override {
    defer("layer_norm", [=](Kernels& k) { k.layer_norm(y, mean, rstd, x, gamma, beta, N, C, eps); });
  }
  void residual_layer_norm(View s, View y, View mean, View rstd, ConstView x, ConstView r, ConstView gamma,
                           ConstView beta, int64_t N, int64_t C, float eps) override {
    defer("residual_layer_norm",
          [=](Kernels& k) { k.residual_layer_norm(s, y, mean, rstd, x, r, gamma, beta, N, C, eps); });
  }
  void layer_norm_backward(View dx, View dgamma, View dbeta, ConstView dy, ConstView x, ConstView mean, ConstView rstd,
                           ConstView gamma, ConstView dresidual, int64_t N, int64_t C, bool accumulate) override {
    defer("layer_norm_backward", [=](Kernels& k) {
      k.layer_norm_backward(dx, dgamma, dbeta, dy, x, mean, rstd, gamma, dresidual, N, C, accumulate);
    });
  }

  void bias_gelu(View y, ConstView x, ConstView bias, int64_t N, int64_t K) override {
    defer("bias_gelu", [=](Kernels& k) { k.bias_gelu(y, x, bias, N, K); });
  }
  void bias_gelu_backward(View dx, View dbias, ConstView dy, ConstView x, ConstView bias, int64_t N, int64_t K,
                          bool accumulate) override {
    defer("bias_gelu_backward", [=](Kernels& k) { k.bias_gelu_backward(dx, dbias, dy, x, bias, N, K, accumulate); });
  }

  void attention(View o, View lse, ConstView q, ConstView k, ConstView v, const AttentionShape& shape) override {
    defer("attention", [=](Kernels& kernels) { kernels.attention(o, lse, q, k, v, shape); });
  }
  void attention_backward(View dq, View dk, View dv, ConstView d_o, ConstView o, ConstView lse, ConstView q,
                          ConstView k, ConstView v, const AttentionShape& shape) override {
    defer("attention_backward",
          [=](Kernels& kernels) { kernels.attention_backward(dq, dk, dv, d_o, o, lse, q, k, v, shape); });
  }

  void dropout(View y, ConstView x, int64_t B, int64_t n, const DropoutMask& mask) override {
    defer("dropout", [=](Kernels& k) { k.dropout(y, x, B, n, mask); });
  }

  void softmax_cross_entropy(View loss, View lse, View totals, ConstView logits, ConstView targets, int64_t N,
                             int64_t V) override {
    defer("softmax_cross_entropy",
          [=](Kernels& k) { k.softmax_cross_entropy(loss, lse, totals, logits, targets, N, V); });
  }
  void softmax_cross_entropy_backward(View logits, ConstView lse, ConstView targets, ConstView dloss, int64_t N,
                                      int64_t V) override {
    defer("softmax_cross_entropy_backward",
          [=](Kernels& k) { k.softmax_cross_entropy_backward(logits, lse, targets, dloss, N, V); });
  }

  void unary(View y, ConstView x, Unary op) override {
    defer("unary", [=](Kernels& k) { k.unary(y, x, op); });
  }
  void unary_backward(View dx, ConstView dy, ConstView saved, Unary op) override {
    defer("unary_backward", [=](Kernels& k) { k.unary_backward(dx, dy, saved, op); });
  }
  void binary(View y, ConstView a, ConstView b, Binary op, const Loop& loop) override {
    defer("binary", [=](Kernels& k) { k.binary(y, a, b, op, loop); });
  }
  void binary_backward(View d, ConstView dy, ConstView a, ConstView b, Binary op, int operand,
                       const Loop& loop) override {
    defer("binary_backward", [=](Kernels& k) { k.binary_backward(d, dy, a, b, op, operand, loop); });
  }
  void reduce(View y, ConstView x, Reduce op, const Axis& axis) override {
    defer("reduce", [=](Kernels& k) { k.reduce(y, x, op, axis); });
  }
  void reduce_backward(View dx, ConstView dy, ConstView x, ConstView y, Reduce op, const Axis& axis) override {
    defer("reduce_backward", [=](Kernels& k) { k.reduce_backward(dx, dy, x, y, op, axis); });
  }
  void softmax(View y, ConstView x, bool logarithm, const Axis& axis) override {
    defer("softmax", [=](Kernels& k) { k.softmax(y, x, logarithm, axis); });
  }
  void softmax_backward(View dx, ConstView dy, ConstView y, bool logarithm, const Axis& axis) override {
    defer("softmax_backward", [=](Kernels& k) { k.softmax_backward(dx, dy, y, logarithm, axis); });
  }
  void copy_strided(View y, ConstView x, const Loop& loop) override {
    defer("copy_strided", [=](Kernels& k) { k.copy_strided(y, x, loop); });
  }
  void batched_matmul(View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K, bool trans_a, bool trans_b,
                      const Loop& batch) override {
    defer("batched_matmul", [=](Kernels& k) { k.batched_matmul(c, a, b, M, N, K, trans_a, trans_b, batch); });
  }

  void max_abs(View out, ConstView x) override {
    defer("max_abs", [=](Kernels& k) { k.max_abs(out, x); });
  }
  void sum_squares(View out, ConstView x, ConstView max_bits) override {
    defer("sum_squares", [=](Kernels& k) { k.sum_squares(out, x, max_bits); });
  }

  void adamw(View param, View master, View m, View v, ConstView grad, const AdamWStep& step) override {
    defer("adamw", [=](Kernels& k) { k.adamw(param, master, m, v, grad, step); });
  }
  void sgd(View param, View master, View u, ConstView grad, const SgdStep& step) override {
    defer("sgd", [=](Kernels& k) { k.sgd(param, master, u, grad, step); });
  }

 private:
  // The queued work shares `inner`, so that it may be carried out after this object is gone.
  template <typename Call>
  void defer(const char* what, Call call) {
    stream_.enqueue(what, [inner = inner_, call] { call(*inner); });
  }

  Stream& stream_;
  std::shared_ptr<Kernels> inner_;
};

}  // namespace

std::unique_ptr<Kernels> make_stream_kernels(Stream& stream, std::shared_ptr<Kernels> inner) {
  return std::make_unique<StreamKernels>(stream, std::move(inner));
}

}  // namespace trencadis
