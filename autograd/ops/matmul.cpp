// c = op(a) op(b) for every matrix of a batch. Backward: d op(a) = dc op(b)^T, d op(b) = op(a)^T dc, summed over the
// batch dimensions in which the operand was repeated.
//
// A single matrix b behind a batch of a that is not transposed (a layer's weight, say) is one product of all rows of a:
// no batch, and b's gradient needs no sum.
#include "autograd/ops/broadcast.h"
#include "autograd/ops/tensor_ops.h"
#include "runtime/context.h"

namespace trencadis {

namespace {

// What is multiplied: op(a) (M,K) and op(b) (K,N) for every step of `batch`, which counts matrices.
struct Product {
  int64_t M, N, K;
  bool trans_a, trans_b;
  Shape batch, a_batch, b_batch;

  Loop loop(const Shape& left, const Shape& right) const { return broadcast_loop(batch, left, right); }
};

Product product_of(const Shape& a, const Shape& b, bool trans_a, bool trans_b) {
  const auto stored = [](bool transposed) { return transposed ? " (transposed)" : ""; };
  CHECK(a.size() >= 2 && b.size() >= 2,
        "matmul: shapes {}{} and {}{}: both need at least two dimensions; reshape a "
        "vector to one row or one column",
        to_string(a), stored(trans_a), to_string(b), stored(trans_b));
  const auto row = [](const Shape& s, bool t) { return s[s.size() - (t ? 1 : 2)]; };
  const auto column = [](const Shape& s, bool t) { return s[s.size() - (t ? 2 : 1)]; };
  CHECK(column(a, trans_a) == row(b, trans_b),
        "matmul: shapes {}{} and {}{} do not fit: the first has {} columns, the second {} rows", to_string(a),
        stored(trans_a), to_string(b), stored(trans_b), column(a, trans_a), row(b, trans_b));
  Product p = {row(a, trans_a), column(b, trans_b), column(a, trans_a), trans_a, trans_b, {}, {}, {}};
  p.a_batch.assign(a.begin(), a.end() - 2);
  p.b_batch.assign(b.begin(), b.end() - 2);
  try {
    p.batch = broadcast_shape("matmul", p.a_batch, p.b_batch);
  } catch (const Error&) {
    CHECK(false, "matmul: shapes {} and {} do not fit: before the last two, sizes must be equal, or one of them 1",
          to_string(a), to_string(b));
  }
  if (element_count(p.b_batch) == 1 && !trans_a) {
    p.M *= element_count(p.batch);
    p.batch = p.a_batch = p.b_batch = {};
  }
  return p;
}

// The gradient of one operand, of shape `shape`: the products of the whole batch, and then their sum.
// left (l,k) = op(x), right (k,r) = op(z), each with the batch that it has.
Tensor gradient(const Product& p, const Tensor& x, bool trans_x, const Shape& x_batch, const Tensor& z, bool trans_z,
                const Shape& z_batch, int64_t rows, int64_t columns, int64_t inner, const Shape& own_batch,
                const Shape& shape) {
  Context& context = x.context();
  const auto empty = [&](Shape s) {
    return Tensor::empty(context, std::move(s), x.dtype(), MemoryCategory::activation, "gradient of matmul");
  };
  const int64_t matrices = element_count(p.batch);
  const bool repeated = element_count(own_batch) != matrices;
  Tensor whole = empty(repeated ? Shape{matrices, rows, columns} : shape);
  context.kernels().batched_matmul(whole, x, z, rows, columns, inner, trans_x, trans_z, p.loop(x_batch, z_batch));
  if (!repeated) return whole;
  Shape each = p.batch, own = own_batch;
  for (Shape* s : {&each, &own}) s->push_back(rows * columns);
  Tensor sum = empty(shape);
  context.kernels().binary_backward(sum, whole, {}, {}, Binary::add, 0, broadcast_loop(each, own, each));
  return sum;
}

}  // namespace

Variable matmul(const Variable& a, const Variable& b, bool transpose_a, bool transpose_b) {
  const Tensor l = a.value(), r = b.value();
  const Product p = product_of(l.shape(), r.shape(), transpose_a, transpose_b);
  Shape shape = broadcast_shape("matmul", Shape(l.shape().begin(), l.shape().end() - 2),
                                Shape(r.shape().begin(), r.shape().end() - 2));
  shape.push_back(l.shape()[l.shape().size() - (transpose_a ? 1 : 2)]);
  shape.push_back(p.N);
  Context& context = l.context();
  Tensor c = Tensor::empty(context, shape, l.dtype(), MemoryCategory::activation, "matmul");
  context.kernels().batched_matmul(c, l, r, p.M, p.N, p.K, transpose_a, transpose_b, p.loop(p.a_batch, p.b_batch));

  const bool a_needs = a.requires_grad(), b_needs = b.requires_grad();
  auto backward = [=, saved_a = b_needs ? l : Tensor(), saved_b = a_needs ? r : Tensor(), a_shape = l.shape(),
                   b_shape = r.shape()](Tensors g) -> Tensors {
    const Tensor& dc = g[0];
    Tensor da, db;
    if (a_needs && !p.trans_a)  // da (M,K) = dc op(b)^T
      da = gradient(p, dc, false, p.batch, saved_b, !p.trans_b, p.b_batch, p.M, p.K, p.N, p.a_batch, a_shape);
    if (a_needs && p.trans_a)  // da (K,M) = op(b) dc^T
      da = gradient(p, saved_b, p.trans_b, p.b_batch, dc, true, p.batch, p.K, p.M, p.N, p.a_batch, a_shape);
    if (b_needs && !p.trans_b)  // db (K,N) = op(a)^T dc
      db = gradient(p, saved_a, !p.trans_a, p.a_batch, dc, false, p.batch, p.K, p.N, p.M, p.b_batch, b_shape);
    if (b_needs && p.trans_b)  // db (N,K) = dc^T op(a)
      db = gradient(p, dc, true, p.batch, saved_a, p.trans_a, p.a_batch, p.N, p.K, p.M, p.b_batch, b_shape);
    return {da, db};
  };
  return record("matmul", {a, b}, std::move(c), std::move(backward));
}

}  // namespace trencadis
