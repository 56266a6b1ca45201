#include "runtime/profile.h"

#include <algorithm>
#include <chrono>

namespace trencadis {

namespace {

using Clock = std::chrono::steady_clock;

double real(int64_t n) { return static_cast<double>(n); }

template <typename... Views>
double bytes_of(const Views&... views) {
  return (0.0 + ... + real(views.bytes()));
}

class ProfilingKernels final : public Kernels {
 public:
  ProfilingKernels(Kernels& kernels, Profile& profile) : kernels_(kernels), profile_(profile) {}

  void zero(View x) override {
    timed("zero", 0, bytes_of(x), [&] { kernels_.zero(x); });
  }
  void copy(View y, ConstView x) override {
    timed("copy", 0, 2 * bytes_of(x), [&] { kernels_.copy(y, x); });
  }
  void cast(View y, ConstView x) override {
    timed("cast", 0, bytes_of(x) + real(x.size * size_of(y.dtype)), [&] { kernels_.cast(y, x); });
  }
  void add(View y, ConstView x) override {
    timed("add", 0, 3 * bytes_of(x), [&] { kernels_.add(y, x); });
  }
  void add(View y, ConstView a, ConstView b) override {
    timed("add", 0, 3 * bytes_of(a), [&] { kernels_.add(y, a, b); });
  }
  void fill(View x, float value) override {
    timed("fill", 0, bytes_of(x), [&] { kernels_.fill(x, value); });
  }
  void normal(View x, float stddev, uint64_t key, int64_t first) override {
    timed("normal", 0, bytes_of(x), [&] { kernels_.normal(x, stddev, key, first); });
  }

  void matmul(View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K, bool trans_a, bool trans_b,
              bool accumulate) override {
    // The three products of a linear layer and its gradients differ in what is transposed.
    timed(trans_a ? "matmul (weight gradient)" : "matmul", 2 * real(M) * real(N) * real(K),
          4 * (real(M * K) + real(K * N) + real(M * N) * (accumulate ? 2 : 1)),
          [&] { kernels_.matmul(c, a, b, M, N, K, trans_a, trans_b, accumulate); });
  }
  void linear(View y, ConstView x, ConstView w, ConstView bias, int64_t N, int64_t C, int64_t K) override {
    timed("linear", 2 * real(N) * real(C) * real(K), 4 * (real(N * C) + real(K * C) + real(N * K)),
          [&] { kernels_.linear(y, x, w, bias, N, C, K); });
  }
  void bias_backward(View db, ConstView dy, int64_t N, int64_t K, bool accumulate) override {
    timed("bias_backward", 0, 4 * real(N * K), [&] { kernels_.bias_backward(db, dy, N, K, accumulate); });
  }

  void embedding(View y, ConstView ids, ConstView wte, ConstView wpe, int64_t B, int64_t T, int64_t C,
                 int64_t V) override {
    timed("embedding", 0, 4 * (2 * real(B * T * C) + real(T * C)),
          [&] { kernels_.embedding(y, ids, wte, wpe, B, T, C, V); });
  }
  void embedding_backward(View dwte, View dwpe, ConstView ids, ConstView dy, int64_t B, int64_t T, int64_t C, int64_t V,
                          int64_t positions, bool accumulate_wte, bool accumulate_wpe) override {
    timed("embedding_backward", 0, 4 * (2 * real(B * T * C) + real(V * C) + real(positions * C)), [&] {
      kernels_.embedding_backward(dwte, dwpe, ids, dy, B, T, C, V, positions, accumulate_wte, accumulate_wpe);
    });
  }

  void layer_norm(View y, View mean, View rstd, ConstView x, ConstView gamma, ConstView beta, int64_t N, int64_t C,
                  float eps) override {
    timed("layer_norm", 0, 8 * real(N * C), [&] { kernels_.layer_norm(y, mean, rstd, x, gamma, beta, N, C, eps); });
  }
  void residual_layer_norm(View s, View y, View mean, View rstd, ConstView x, ConstView r, ConstView gamma,
                           ConstView beta, int64_t N, int64_t C, float eps) override {
    timed("residual_layer_norm", 0, 16 * real(N * C),
          [&] { kernels_.residual_layer_norm(s, y, mean, rstd, x, r, gamma, beta, N, C, eps); });
  }
  void layer_norm_backward(View dx, View dgamma, View dbeta, ConstView dy, ConstView x, ConstView mean, ConstView rstd,
                           ConstView gamma, ConstView dresidual, int64_t N, int64_t C, bool accumulate) override {
    timed("layer_norm_backward", 0, 4 * real(N * C) * (dresidual ? 4 : 3), [&] {
      kernels_.layer_norm_backward(dx, dgamma, dbeta, dy, x, mean, rstd, gamma, dresidual, N, C, accumulate);
    });
  }

  void bias_gelu(View y, ConstView x, ConstView bias, int64_t N, int64_t K) override {
    timed("bias_gelu", 0, 8 * real(N * K), [&] { kernels_.bias_gelu(y, x, bias, N, K); });
  }
  void bias_gelu_backward(View dx, View dbias, ConstView dy, ConstView x, ConstView bias, int64_t N, int64_t K,
                          bool accumulate) override {
    timed("bias_gelu_backward", 0, 12 * real(N * K),
          [&] { kernels_.bias_gelu_backward(dx, dbias, dy, x, bias, N, K, accumulate); });
  }

  void attention(View o, View lse, ConstView q, ConstView k, ConstView v, const AttentionShape& s) override {
    timed("attention", 2 * pairs(s), 4 * tokens(s) * real(2 * s.H + 2 * s.H_kv) * real(s.D),
          [&] { kernels_.attention(o, lse, q, k, v, s); });
  }
  void attention_backward(View dq, View dk, View dv, ConstView d_o, ConstView o, ConstView lse, ConstView q,
                          ConstView k, ConstView v, const AttentionShape& s) override {
    timed("attention_backward", 5 * pairs(s), 4 * tokens(s) * real(4 * s.H + 4 * s.H_kv) * real(s.D),
          [&] { kernels_.attention_backward(dq, dk, dv, d_o, o, lse, q, k, v, s); });
  }

  void dropout(View y, ConstView x, int64_t B, int64_t n, const DropoutMask& mask) override {
    timed("dropout", 0, 8 * real(B * n), [&] { kernels_.dropout(y, x, B, n, mask); });
  }

  void softmax_cross_entropy(View loss, View lse, View totals, ConstView logits, ConstView targets, int64_t N,
                             int64_t V) override {
    timed("softmax_cross_entropy", 0, 4 * real(N * V),
          [&] { kernels_.softmax_cross_entropy(loss, lse, totals, logits, targets, N, V); });
  }
  void softmax_cross_entropy_backward(View logits, ConstView lse, ConstView targets, ConstView dloss, int64_t N,
                                      int64_t V) override {
    timed("softmax_cross_entropy_backward", 0, 8 * real(N * V),
          [&] { kernels_.softmax_cross_entropy_backward(logits, lse, targets, dloss, N, V); });
  }

  void unary(View y, ConstView x, Unary op) override {
    timed("unary", 0, 2 * bytes_of(x), [&] { kernels_.unary(y, x, op); });
  }
  void unary_backward(View dx, ConstView dy, ConstView saved, Unary op) override {
    timed("unary_backward", 0, 3 * bytes_of(dy), [&] { kernels_.unary_backward(dx, dy, saved, op); });
  }
  void binary(View y, ConstView a, ConstView b, Binary op, const Loop& loop) override {
    constexpr const char* names[] = {"add", "sub", "mul", "div"};
    timed(names[static_cast<size_t>(op)], 0, 4 * real(loop.count() + loop.span(0) + loop.span(1)),
          [&] { kernels_.binary(y, a, b, op, loop); });
  }
  void binary_backward(View d, ConstView dy, ConstView a, ConstView b, Binary op, int operand,
                       const Loop& loop) override {
    timed("binary_backward", 0, 4 * real(loop.count() + loop.span(operand)) + bytes_of(a, b),
          [&] { kernels_.binary_backward(d, dy, a, b, op, operand, loop); });
  }
  void reduce(View y, ConstView x, Reduce op, const Axis& axis) override {
    timed("reduce", 0, 4 * real(axis.count() + axis.rows()), [&] { kernels_.reduce(y, x, op, axis); });
  }
  void reduce_backward(View dx, ConstView dy, ConstView x, ConstView y, Reduce op, const Axis& axis) override {
    timed("reduce_backward", 0, 4 * real(axis.count() * (op == Reduce::max ? 2 : 1) + axis.rows()),
          [&] { kernels_.reduce_backward(dx, dy, x, y, op, axis); });
  }
  void softmax(View y, ConstView x, bool logarithm, const Axis& axis) override {
    timed("softmax", 0, 8 * real(axis.count()), [&] { kernels_.softmax(y, x, logarithm, axis); });
  }
  void softmax_backward(View dx, ConstView dy, ConstView y, bool logarithm, const Axis& axis) override {
    timed("softmax_backward", 0, 12 * real(axis.count()),
          [&] { kernels_.softmax_backward(dx, dy, y, logarithm, axis); });
  }
  void copy_strided(View y, ConstView x, const Loop& loop) override {
    timed("copy_strided", 0, 8 * real(loop.count()), [&] { kernels_.copy_strided(y, x, loop); });
  }
  void batched_matmul(View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K, bool trans_a, bool trans_b,
                      const Loop& batch) override {
    timed("batched_matmul", 2 * real(batch.count()) * real(M) * real(N) * real(K),
          4 * (real(batch.span(0) * M * K) + real(batch.span(1) * K * N) + real(batch.count() * M * N)),
          [&] { kernels_.batched_matmul(c, a, b, M, N, K, trans_a, trans_b, batch); });
  }

  void max_abs(View out, ConstView x) override {
    timed("max_abs", 0, bytes_of(x), [&] { kernels_.max_abs(out, x); });
  }
  void sum_squares(View out, ConstView x, ConstView max_bits) override {
    timed("sum_squares", 0, bytes_of(x), [&] { kernels_.sum_squares(out, x, max_bits); });
  }

  void adamw(View param, View master, View m, View v, ConstView grad, const AdamWStep& step) override {
    timed("adamw", 0, 2 * bytes_of(master, m, v) + bytes_of(grad),
          [&] { kernels_.adamw(param, master, m, v, grad, step); });
  }
  void sgd(View param, View master, View u, ConstView grad, const SgdStep& step) override {
    timed("sgd", 0, 2 * bytes_of(master, u) + bytes_of(grad), [&] { kernels_.sgd(param, master, u, grad, step); });
  }

 private:
  template <typename Work>
  void timed(const char* kernel, double flops, double bytes, const Work& work) {
    const Clock::time_point start = Clock::now();
    work();
    profile_.add(kernel, std::chrono::duration<double>(Clock::now() - start).count(), flops, bytes);
  }

  static double tokens(const AttentionShape& s) { return real(s.B) * real(s.T); }
  // Multiplications and additions of one causal (T,T) x D product over all heads.
  static double pairs(const AttentionShape& s) { return tokens(s) * real(s.H) * real(s.D) * (real(s.T) + 1); }

  Kernels& kernels_;
  Profile& profile_;
};

class ProfilingBackend final : public Backend {
 public:
  ProfilingBackend(std::unique_ptr<Backend> backend, Profile& profile)
      : backend_(std::move(backend)), kernels_(backend_->kernels(), profile) {}

  Device device() const override { return backend_->device(); }
  Allocator& allocator() override { return backend_->allocator(); }
  Stream& compute_stream() override { return backend_->compute_stream(); }
  std::unique_ptr<Stream> make_stream(std::string name) override { return backend_->make_stream(std::move(name)); }
  Kernels& kernels() override { return kernels_; }
  std::unique_ptr<Kernels> make_kernels(Stream& stream) override { return backend_->make_kernels(stream); }
  void copy_to_host(void* host, ConstView device) override { backend_->copy_to_host(host, device); }
  void copy_from_host(View device, const void* host) override { backend_->copy_from_host(device, host); }
  void trace_with(Tracer& tracer) override { backend_->trace_with(tracer); }

 private:
  std::unique_ptr<Backend> backend_;
  ProfilingKernels kernels_;
};

}  // namespace

void Profile::add(const char* kernel, double seconds, double flops, double bytes) {
  auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) { return r.kernel == kernel; });
  if (row == rows_.end()) row = rows_.insert(row, {kernel, 0, 0, 0, 0});
  ++row->calls;
  row->seconds += seconds;
  row->flops += flops;
  row->bytes += bytes;
}

std::vector<Profile::Row> Profile::rows() const {
  std::vector<Row> sorted = rows_;
  std::sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return sorted;
}

std::unique_ptr<Backend> make_profiling_backend(std::unique_ptr<Backend> backend, Profile& profile) {
  return std::make_unique<ProfilingBackend>(std::move(backend), profile);
}

}  // namespace trencadis
