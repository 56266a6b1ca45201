// Kernels: the table of contents of all mathematics in this project. One line and one formula per kernel.
//
// runtime/cpu and runtime/cuda implement this class; a kernel that one of them lacks does not compile. Conventions:
//   B batch, T sequence, C channels, H heads, D head size, V vocabulary; N rows (usually B*T), K output features.
//   Outputs come first. All arrays are dense and row-major; a view may be longer than the kernel needs, never shorter.
//   An output may not overlap an input unless the line says "in place".
//   accumulate = false writes, true adds to what is there ("dw = ..." means that for every gradient of a parameter).
//   A parameter's gradient (dwte, dwpe, dgamma, dbeta, dbias) may be an empty view: that parameter is frozen.
//   The order of every sum depends on shapes alone, never on threads, alignment or timing.
// Kernels are ordered on the stream that their object was made for. Errors: CHECK on types and sizes.
#pragma once

#include <cstdint>

#include "runtime/loop.h"
#include "runtime/random.h"
#include "runtime/view.h"

namespace trencadis {

// Where heads lie in memory: token t of batch b starts at data + (b*T + t)*stride, head h of it D*h further.
// Query head h attends with key/value head h / (H / H_kv) (grouped-query attention; GPT-2 has H_kv = H).
struct AttentionShape {
  int64_t B = 0, T = 0, H = 0, H_kv = 0, D = 0;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0;  // elements; gradients are laid out like their values
  float scale = 1;                                                 // usually 1/sqrt(D)
  DropoutMask dropout;  // on the probabilities; element (h*T + i)*T + j of the sample
};

struct AdamWStep {
  float lr = 0, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0;
  int64_t t = 1;         // this step's number, from 1
  float grad_scale = 1;  // multiplies every gradient: the mean over tokens and the clipping in one factor
};

struct SgdStep {
  float lr = 0, momentum = 0, weight_decay = 0;
  int64_t t = 1;
  float grad_scale = 1;
};

// The words of a loss accumulator: i64[kLossWords].
enum LossWord { kLossTokens, kLossFixedPoint, kLossNonFinite, kLossWords };
inline constexpr double kLossUnit = 1.0 / (1 << 30);  // nats per unit of kLossFixedPoint

// sum_squares counts in units of 2^-28 (word 0) and 2^-56 (word 1) of the squared maximum.
inline constexpr double kSquareUnit = 1.0 / (1 << 28);

// The general operations, for models that have no kernel of their own above.
enum class Unary { exp, log, sqrt, tanh, sigmoid, relu, silu, gelu };
enum class Binary { add, sub, mul, div };
enum class Reduce { sum, mean, max };
// What the derivative is computed from: the result, or else the argument.
constexpr bool derivative_reads_result(Unary op) { return op != Unary::log && op != Unary::silu && op != Unary::gelu; }

class Kernels {
 public:
  virtual ~Kernels() = default;

  // -- bytes and elements ------------------------------------------------------------------------------------------
  virtual void zero(View x) = 0;                           // x_i = 0
  virtual void copy(View y, ConstView x) = 0;              // y_i = x_i, same type; x.size elements
  virtual void cast(View y, ConstView x) = 0;              // y_i = x_i, f32 <-> bf16, round to nearest even
  virtual void add(View y, ConstView x) = 0;               // y_i = y_i + x_i (f32)
  virtual void add(View y, ConstView a, ConstView b) = 0;  // y_i = a_i + b_i (f32; in place on a or b)
  virtual void fill(View x, float value) = 0;              // x_i = value
  // x_i = stddev * the standard normal number of element first + i under key (Box-Muller on philox({e/4, 0}, key)).
  virtual void normal(View x, float stddev, uint64_t key, int64_t first) = 0;

  // -- matrix products ---------------------------------------------------------------------------------------------
  // c (M,N) = op(a) (M,K) * op(b) (K,N); op transposes when trans_ is set: a is then stored (K,M), b (N,K).
  virtual void matmul(View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K, bool trans_a, bool trans_b,
                      bool accumulate) = 0;
  // y (N,K) = x (N,C) * w^T + bias, w (K,C), bias (K) or empty
  virtual void linear(View y, ConstView x, ConstView w, ConstView bias, int64_t N, int64_t C, int64_t K) = 0;
  // db (K) = sum over N of dy (N,K)
  virtual void bias_backward(View db, ConstView dy, int64_t N, int64_t K, bool accumulate) = 0;

  // -- embedding ---------------------------------------------------------------------------------------------------
  // y (B,T,C) = wte[ids[b,t]] + wpe[t]; ids i32 in [0, V)
  virtual void embedding(View y, ConstView ids, ConstView wte, ConstView wpe, int64_t B, int64_t T, int64_t C,
                         int64_t V) = 0;
  // dwte[ids[b,t]] += dy[b,t], tokens in ascending order, rows not seen 0; dwpe[t] = sum over b of dy[b,t].
  // dwpe has `positions` rows of which the first T are used; the others become 0 (or stay, when accumulating).
  virtual void embedding_backward(View dwte, View dwpe, ConstView ids, ConstView dy, int64_t B, int64_t T, int64_t C,
                                  int64_t V, int64_t positions, bool accumulate_wte, bool accumulate_wpe) = 0;

  // -- layer norm --------------------------------------------------------------------------------------------------
  // mean, rstd (N); y (N,C) = (x - mean) * rstd * gamma + beta, rstd = 1 / sqrt(biased variance over C + eps)
  virtual void layer_norm(View y, View mean, View rstd, ConstView x, ConstView gamma, ConstView beta, int64_t N,
                          int64_t C, float eps) = 0;
  // s = x + r (N,C), then y, mean, rstd = layer_norm(s)
  virtual void residual_layer_norm(View s, View y, View mean, View rstd, ConstView x, ConstView r, ConstView gamma,
                                   ConstView beta, int64_t N, int64_t C, float eps) = 0;
  // xh = (x - mean) * rstd; g = gamma * dy; dx = rstd * (g - mean_C(g) - xh * mean_C(g * xh)) [+ dresidual (N,C), or
  // empty] dgamma = sum over N of dy * xh; dbeta = sum over N of dy. dx may be dresidual (in place).
  virtual void layer_norm_backward(View dx, View dgamma, View dbeta, ConstView dy, ConstView x, ConstView mean,
                                   ConstView rstd, ConstView gamma, ConstView dresidual, int64_t N, int64_t C,
                                   bool accumulate) = 0;

  // -- activation --------------------------------------------------------------------------------------------------
  // u = x + bias; y = 0.5 u (1 + tanh(sqrt(2/pi) (u + 0.044715 u^3)))   x, y (N,K); bias (K). Hendrycks, Gimpel 2016
  virtual void bias_gelu(View y, ConstView x, ConstView bias, int64_t N, int64_t K) = 0;
  // dx = dy * gelu'(x + bias) (in place on dy); dbias = sum over N of dx
  virtual void bias_gelu_backward(View dx, View dbias, ConstView dy, ConstView x, ConstView bias, int64_t N, int64_t K,
                                  bool accumulate) = 0;

  // -- attention ---------------------------------------------------------------------------------------------------
  // s_ij = scale * q_i . k_j, j <= i; lse_i = log sum_j exp(s_ij); p = dropout(exp(s - lse)); o_i = sum_j p_ij v_j.
  // lse (B,H,T). No (T,T) matrix is ever stored; tiles of it are.
  virtual void attention(View o, View lse, ConstView q, ConstView k, ConstView v, const AttentionShape& shape) = 0;
  // Recomputes p from lse; dv_j = sum_i p_ij do_i; dp = dropout'(do . v); ds = p (dp - sum(do * o)); dq = scale ds k,
  // dk = scale ds^T q. dq, dk, dv are written (never accumulated).
  virtual void attention_backward(View dq, View dk, View dv, ConstView d_o, ConstView o, ConstView lse, ConstView q,
                                  ConstView k, ConstView v, const AttentionShape& shape) = 0;

  // -- dropout -----------------------------------------------------------------------------------------------------
  // y = x * keep / (1 - p) for B samples of n elements each (in place allowed). Its own backward.
  virtual void dropout(View y, ConstView x, int64_t B, int64_t n, const DropoutMask& mask) = 0;

  // -- loss --------------------------------------------------------------------------------------------------------
  // lse_i = log sum_v exp(logits_iv); l_i = lse_i - logits_i,target; loss (f32[1]) = sum l_i over targets >= 0 (others
  // are ignored). totals (i64[kLossWords]) += {valid tokens, sum l_i in kLossUnit, l_i that were not finite}; the sum
  // is a sum of integers, hence without an order. targets i32 below V.
  virtual void softmax_cross_entropy(View loss, View lse, View totals, ConstView logits, ConstView targets, int64_t N,
                                     int64_t V) = 0;
  // In place: logits_iv = (exp(logits_iv - lse_i) - [v = target_i]) * dloss[0]; 0 for rows that are ignored.
  virtual void softmax_cross_entropy_backward(View logits, ConstView lse, ConstView targets, ConstView dloss, int64_t N,
                                              int64_t V) = 0;

  // -- general operations: any shape (runtime/loop.h) -----------------------------------------------------------------
  // y_i = op(x_i): e^x, ln x, sqrt x, tanh x, s = 1 / (1 + e^-x), max(x, 0), x s, gelu as above (in place)
  virtual void unary(View y, ConstView x, Unary op) = 0;
  // dx_i = dy_i op'(x_i): dy y, dy / x, dy / 2y, dy (1 - y^2), dy y (1 - y), dy [y > 0], dy (s + x s (1 - s)), as above
  // (in place on dy). `saved` is y where derivative_reads_result(op), else x.
  virtual void unary_backward(View dx, ConstView dy, ConstView saved, Unary op) = 0;
  // y = a op b over the loop; y is dense, a and b have its steps (in place on an operand without steps of 0)
  virtual void binary(View y, ConstView a, ConstView b, Binary op, const Loop& loop) = 0;
  // d = sum of dy * (d y / d operand) over the dimensions in which the operand, a (0) or b (1), has step 0; d is dense.
  // d/da: 1, 1, b, 1 / b; d/db: 1, -1, a, -a / b^2. An operand that is not read may be an empty view.
  virtual void binary_backward(View d, ConstView dy, ConstView a, ConstView b, Binary op, int operand,
                               const Loop& loop) = 0;
  // y (outer,inner) = sum, mean or largest of x (outer,n,inner) along n; a NaN is the largest
  virtual void reduce(View y, ConstView x, Reduce op, const Axis& axis) = 0;
  // dx_j = dy, dy / n, or for max dy where x_j is the first that equals y (or is NaN), else 0
  virtual void reduce_backward(View dx, ConstView dy, ConstView x, ConstView y, Reduce op, const Axis& axis) = 0;
  // y_j = e^x_j / sum_k e^x_k along n; or with `logarithm` y_j = x_j - ln sum_k e^x_k
  virtual void softmax(View y, ConstView x, bool logarithm, const Axis& axis) = 0;
  // dx_j = y_j (dy_j - sum_k dy_k y_k); or with `logarithm` dx_j = dy_j - e^y_j sum_k dy_k (in place on dy)
  virtual void softmax_backward(View dx, ConstView dy, ConstView y, bool logarithm, const Axis& axis) = 0;
  // y = x over the loop: array 0 is y, 1 is x; elements of y that the loop does not reach stay
  virtual void copy_strided(View y, ConstView x, const Loop& loop) = 0;
  // c = op(a) op(b) as in matmul, for every matrix of the loop; c (batch,M,N) is dense, steps count matrices of a and b
  virtual void batched_matmul(View c, ConstView a, ConstView b, int64_t M, int64_t N, int64_t K, bool trans_a,
                              bool trans_b, const Loop& batch) = 0;

  // -- gradient norm -----------------------------------------------------------------------------------------------
  // out (i64[1]) = max(out, bit pattern of |x_i| as f32): orders like the values, with inf and then NaN on top.
  virtual void max_abs(View out, ConstView x) = 0;
  // r = x_i * (1 / m) in double, m = the f32 whose bits are in max_bits (i64[1]); out (i64[2]) += floor(r^2 2^28), and
  // the rest floor(rest 2^28): an integer sum, hence the same for any split. Nothing is added when m is 0, inf or NaN.
  virtual void sum_squares(View out, ConstView x, ConstView max_bits) = 0;

  // -- optimizer ---------------------------------------------------------------------------------------------------
  // g = grad * grad_scale; p -= lr*wd*p; m += (1-b1)(g-m); v += (1-b2)(g^2-v);
  // p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps). Loshchilov, Hutter 2019. param receives master in its own
  // type; both may be the same memory (f32).
  virtual void adamw(View param, View master, View m, View v, ConstView grad, const AdamWStep& step) = 0;
  // g = grad * grad_scale + wd*p; u = t == 1 ? g : momentum*u + g; p -= lr*u. `u` is empty when momentum is 0.
  virtual void sgd(View param, View master, View u, ConstView grad, const SgdStep& step) = 0;
};

}  // namespace trencadis
