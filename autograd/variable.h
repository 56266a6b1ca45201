// Variable: a tensor that the tape knows, and Node: one recorded operation.
//
// A variable made by an op points at the node that made it; a leaf (a parameter, an input) points at none and receives
// its gradient. Edges of the graph hold nodes and leaves, never the values of intermediates: what backward needs, the
// op saves itself, so that everything else is freed as soon as forward has passed it. An op saves a parameter as a
// Variable, not its bytes: a parameter that was released and gathered again in between is read where it lies now.
//
// A leaf's gradient goes into memory that somebody lends (a ZeRO unit's buffer); ops write it directly. Where nobody
// lent any, the first write allocates. Within one backward a first write stores and later ones add.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/tensor.h"

namespace trencadis {

class Node;

// Where an op writes the gradient of a leaf; see Variable::gradient_target.
struct GradientTarget {
  View view;  // empty when the leaf needs no gradient
  bool accumulate = false;
};

class Variable {
 public:
  Variable() = default;
  explicit Variable(Tensor value, bool requires_grad = false, std::string name = "");

  bool defined() const { return state_ != nullptr; }
  const Tensor& value() const { return state_->value; }
  bool requires_grad() const { return defined() && state_->requires_grad; }
  const std::string& name() const { return state_->name; }

  // Leaves only -------------------------------------------------------------------------------------------------------
  void bind(Tensor value) { state_->value = std::move(value); }  // gives a parameter its memory
  void set_requires_grad(bool on) { state_->requires_grad = on; }
  void set_name(std::string name) { state_->name = std::move(name); }

  // Lends memory of the value's shape; the gradient counts as not written.
  void lend_gradient(Tensor memory);
  // Takes the gradient away: what was written, or an undefined tensor.
  Tensor take_gradient();
  bool gradient_written() const { return state_->gradient_written; }
  const Tensor& gradient() const { return state_->gradient; }

  // For an op's backward: memory to write this leaf's gradient to. accumulate is true from the second call on.
  GradientTarget gradient_target();

 private:
  friend class Node;
  friend struct Edge;
  friend class GradientFlow;
  struct State {
    Tensor value;
    Tensor gradient;
    bool requires_grad = false;
    bool gradient_written = false;
    bool gradient_lent = false;  // the gradient is a lender's memory: written in place, never exchanged for another
    std::string name;
    std::shared_ptr<Node> node;  // who made it; null for a leaf
    int output = 0;              // which of the node's outputs
  };
  std::shared_ptr<State> state_;
};

// From a node to what it read: another node's output, a leaf, or (both null) something that needs no gradient.
struct Edge {
  std::shared_ptr<Node> node;
  int output = 0;
  std::shared_ptr<Variable::State> leaf;

  Edge() = default;
  explicit Edge(const Variable& variable);
};

using Tensors = std::vector<Tensor>;
// Gradients of the outputs (undefined where none arrived) to gradients of the inputs (undefined where none is due).
using BackwardFunction = std::function<Tensors(Tensors)>;

class Node {
 public:
  // Marks `outputs` as made by a new node that read `inputs`; parameters whose gradients the op writes itself by
  // gradient_target() are not among the inputs. Does nothing unless grad mode is on and some input, or some of
  // `parameters`, requires a gradient. Returns the outputs as variables.
  static std::vector<Variable> record(const char* name, const std::vector<Variable>& inputs, Tensors outputs,
                                      BackwardFunction backward, const std::vector<Variable>& parameters = {});
  ~Node();

  const char* name() const { return name_; }

 private:
  friend class GradientFlow;
  Node() = default;

  const char* name_ = "";
  uint64_t sequence_ = 0;  // of creation in this thread: backward visits later nodes first
  std::vector<Edge> inputs_;
  BackwardFunction backward_;  // holds the saved tensors; emptied as backward passes
  Tensors output_gradients_;
  int waiting_for_ = 0;  // consumers that backward has still to visit
};

// One output.
Variable record(const char* name, const std::vector<Variable>& inputs, Tensor output, BackwardFunction backward,
                const std::vector<Variable>& parameters = {});

// Runs the tape backwards from `roots`, whose gradients are `seeds`. Iterative: the depth of the graph is not limited
// by the stack. Nodes are visited in reverse order of creation, so sums of gradients have one order. Consumes the tape.
void backward(const std::vector<Edge>& roots, Tensors seeds);
// From one scalar (one element), seeded with `seed`.
void backward(const Variable& scalar, float seed = 1.0f);

// Grad mode, per thread: ops record only while it is on. It is the one thread-local that changes what a program means
// (gemm_openblas.cpp has another, that a thread has set OpenMP's limit for itself).
bool grad_enabled();
class GradMode {
 public:
  explicit GradMode(bool enabled);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool previous_;
};
struct NoGrad : GradMode {
  NoGrad() : GradMode(false) {}
};

}  // namespace trencadis
