// The backward pass: visits the recorded nodes in reverse order of their creation and passes
// gradients along their edges.
//
// Invariants: a node runs when every consumer that can reach it has run, once; gradients that meet are added in the
// order of visits, which depends on the program alone; what a node saved is freed as soon as it has run.
#include <algorithm>
#include <queue>
#include <unordered_set>

#include "autograd/variable.h"
#include "runtime/context.h"

namespace trencadis {

class GradientFlow {
 public:
  GradientFlow(const std::vector<Edge>& roots, Tensors seeds) {
    count_consumers(roots);
    for (size_t i = 0; i < roots.size(); ++i)
      if (seeds[i].defined()) deliver(roots[i], std::move(seeds[i]));
    for (const Edge& root : roots)
      if (root.node && root.node->waiting_for_ == 0 && queued_.insert(root.node.get()).second) ready_.push(root.node);
  }

  void run() {
    while (!ready_.empty()) {
      const std::shared_ptr<Node> node = ready_.top();
      ready_.pop();
      visit(*node);
    }
  }

 private:
  struct LaterFirst {
    bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
      return a->sequence_ < b->sequence_;
    }
  };

  // waiting_for_ = the number of edges that lead to the node from nodes reachable from the roots.
  void count_consumers(const std::vector<Edge>& roots) {
    std::vector<Node*> stack;
    std::unordered_set<Node*> seen;
    const auto push = [&](Node* node) {
      if (!node || !seen.insert(node).second) return;
      CHECK(node->backward_, "backward reaches {} a second time; its saved tensors were freed: run forward again",
            node->name_);
      stack.push_back(node);
      node->waiting_for_ = 0;
    };
    for (const Edge& root : roots) push(root.node.get());
    std::vector<Node*> order;
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      order.push_back(node);
      for (const Edge& edge : node->inputs_) push(edge.node.get());
    }
    for (Node* node : order)
      for (const Edge& edge : node->inputs_)
        if (edge.node) ++edge.node->waiting_for_;
  }

  void visit(Node& node) {
    Tensors gradients = std::move(node.output_gradients_);
    const BackwardFunction backward = std::move(node.backward_);
    node.backward_ = nullptr;
    const std::vector<Edge> inputs = std::move(node.inputs_);
    node.inputs_.clear();
    const bool arrived = std::any_of(gradients.begin(), gradients.end(), [](const Tensor& g) { return g.defined(); });
    Tensors input_gradients = arrived ? backward(std::move(gradients)) : Tensors(inputs.size());
    CHECK(input_gradients.size() == inputs.size(), "backward of {} returned {} gradients for {} inputs", node.name_,
          input_gradients.size(), inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (input_gradients[i].defined()) deliver(inputs[i], std::move(input_gradients[i]));
      Node* const source = inputs[i].node.get();
      if (source && --source->waiting_for_ == 0) ready_.push(inputs[i].node);
    }
  }

  void deliver(const Edge& edge, Tensor gradient) {
    if (edge.node) {
      add_to(edge.node->output_gradients_[static_cast<size_t>(edge.output)], std::move(gradient));
    } else if (edge.leaf) {
      Variable::State& leaf = *edge.leaf;
      Kernels& kernels = gradient.context().kernels();
      if (!leaf.gradient_lent)
        add_to(leaf.gradient, std::move(gradient));
      else if (leaf.gradient_written)
        kernels.add(leaf.gradient, gradient);
      else
        kernels.copy(leaf.gradient, gradient);
      leaf.gradient_written = true;
    }
  }

  static void add_to(Tensor& sum, Tensor gradient) {
    if (!sum.defined()) {
      sum = std::move(gradient);
    } else if (sum.storage().use_count() == 1) {
      sum.context().kernels().add(sum, gradient);
    } else {  // somebody else sees this memory: a residual connection hands one gradient to two inputs
      Tensor fresh = Tensor::empty(sum.context(), sum.shape(), sum.dtype(), MemoryCategory::activation, "gradient sum");
      sum.context().kernels().add(fresh, sum, gradient);
      sum = std::move(fresh);
    }
  }

  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, LaterFirst> ready_;
  std::unordered_set<Node*> queued_;
};

void backward(const std::vector<Edge>& roots, Tensors seeds) {
  CHECK(roots.size() == seeds.size(), "{} roots and {} seeds", roots.size(), seeds.size());
  const NoGrad no_grad;
  GradientFlow(roots, std::move(seeds)).run();
}

void backward(const Variable& scalar, float seed) {
  CHECK(scalar.requires_grad(), "backward from a variable that needs no gradient; was it made under NoGrad?");
  CHECK(scalar.value().size() == 1, "backward needs a scalar, this has shape {}; sum it first",
        to_string(scalar.value().shape()));
  Tensor gradient = Tensor::empty(scalar.value().context(), scalar.value().shape(), DType::f32,
                                  MemoryCategory::activation, "seed of backward");
  scalar.value().context().kernels().fill(gradient, seed);
  backward({Edge(scalar)}, {std::move(gradient)});
}

}  // namespace trencadis
