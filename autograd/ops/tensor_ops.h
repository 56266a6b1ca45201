// General operations on variables of any shape, as PyTorch has them: what a model of your own is made of where no fused
// operation of ops.h fits. Formulas stand in runtime/kernels.h.
//
// Axes may be negative: -1 is the last one. Shapes of two operands broadcast as NumPy's: aligned at their last
// dimensions, sizes equal or one of them 1, missing dimensions 1. What does not fit is an Error that prints the shapes.
// All of it is differentiable; a variable may be both operands, and a parameter any of them.
#pragma once

#include <vector>

#include "autograd/variable.h"

namespace trencadis {

// A variable, or a number that counts as an operand of shape ().
class Operand {
 public:
  Operand(Variable variable) : variable_(std::move(variable)) {}
  Operand(float number) : number_(number) {}

  const Variable& variable() const { return variable_; }  // undefined when this is a number
  float number() const { return number_; }

 private:
  Variable variable_;
  float number_ = 0;
};

// -- elementwise.cpp --------------------------------------------------------------------------------------------------
// a op b; at least one of the two is a variable. One shape: add hands its gradient to both, without a copy.
Variable add(const Operand& a, const Operand& b);
Variable sub(const Operand& a, const Operand& b);
Variable mul(const Operand& a, const Operand& b);
Variable div(const Operand& a, const Operand& b);
inline Variable operator+(const Operand& a, const Operand& b) { return add(a, b); }
inline Variable operator-(const Operand& a, const Operand& b) { return sub(a, b); }
inline Variable operator*(const Operand& a, const Operand& b) { return mul(a, b); }
inline Variable operator/(const Operand& a, const Operand& b) { return div(a, b); }
inline Variable operator-(const Variable& x) { return mul(-1.0f, x); }

Variable exp(const Variable& x);
Variable log(const Variable& x);
Variable sqrt(const Variable& x);
Variable tanh(const Variable& x);
Variable sigmoid(const Variable& x);
Variable relu(const Variable& x);
Variable silu(const Variable& x);
Variable gelu(const Variable& x);  // tanh form

// -- reduce.cpp -------------------------------------------------------------------------------------------------------
// Along an axis, which then has size 1 (keepdim) or is gone; or over everything, with the shape (). The gradient of max
// goes to the first of the largest elements.
Variable sum(const Variable& x, int64_t axis, bool keepdim = false);
Variable mean(const Variable& x, int64_t axis, bool keepdim = false);
Variable max(const Variable& x, int64_t axis, bool keepdim = false);
Variable sum(const Variable& x);
Variable mean(const Variable& x);
Variable max(const Variable& x);

// Along an axis; the shape stays.
Variable softmax(const Variable& x, int64_t axis);
Variable log_softmax(const Variable& x, int64_t axis);

// -- shape.cpp --------------------------------------------------------------------------------------------------------
// The same elements in another shape, and the same memory. One size may be -1: what the others leave.
Variable reshape(const Variable& x, Shape shape);
Variable transpose(const Variable& x, int64_t axis, int64_t other);
// Axis i of the result is axis axes[i] of x.
Variable permute(const Variable& x, const std::vector<int64_t>& axes);
// Elements [first, last) along an axis; negative ones count from its end.
Variable slice(const Variable& x, int64_t axis, int64_t first, int64_t last);
// One behind the other along an axis; the other sizes are equal.
Variable concat(const std::vector<Variable>& parts, int64_t axis);

// -- matmul.cpp -------------------------------------------------------------------------------------------------------
// (..., M, K) (..., K, N) -> (..., M, N). What stands before the last two dimensions broadcasts. transpose_a: a is stored
// (..., K, M); transpose_b: b is stored (..., N, K).
Variable matmul(const Variable& a, const Variable& b, bool transpose_a = false, bool transpose_b = false);

}  // namespace trencadis
