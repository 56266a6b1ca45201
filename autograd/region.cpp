#include "autograd/region.h"

namespace trencadis {

namespace {

// Inputs cut off from the outer graph: leaves of the inner one.
std::vector<Variable> detach(const std::vector<Variable>& variables) {
  std::vector<Variable> leaves;
  for (const Variable& v : variables) leaves.emplace_back(v.value(), v.requires_grad(), "input of a region");
  return leaves;
}

std::vector<Edge> edges_of(const std::vector<Variable>& variables) {
  std::vector<Edge> edges;
  for (const Variable& v : variables) edges.emplace_back(v);
  return edges;
}

}  // namespace

std::vector<Variable> region(RegionObserver* observer, RegionUse use, bool recompute,
                             const std::vector<Variable>& inputs, const RegionFunction& run) {
  use.recording = grad_enabled();
  if (observer) observer->before_forward(use);
  std::vector<Variable> inner_inputs, inner_outputs;
  if (use.recording) {
    inner_inputs = detach(inputs);
    const GradMode mode(!recompute);
    inner_outputs = run(inner_inputs);
  } else {
    inner_outputs = run(inputs);
  }
  if (observer) observer->after_forward(use);
  if (!use.recording) return inner_outputs;

  Tensors outputs;
  for (const Variable& v : inner_outputs) outputs.push_back(v.value());
  // The inner graph is held by its edges, not by variables: those would keep every output's value alive.
  auto edges = edges_of(inner_outputs);
  inner_outputs.clear();
  // A leaf keeps its value, and the recomputation needs it; otherwise ops have saved what they need.
  if (!recompute)
    for (Variable& v : inner_inputs) v.bind(Tensor());

  auto backward_of_region = [observer, use, recompute, run, edges = std::move(edges),
                             inner_inputs](Tensors gradients) mutable {
    if (observer) observer->before_backward(use);
    if (recompute) {
      const GradMode mode(true);
      edges = edges_of(run(inner_inputs));
      for (Variable& v : inner_inputs) v.bind(Tensor());
    }
    backward(edges, std::move(gradients));
    edges.clear();
    Tensors input_gradients;
    for (Variable& v : inner_inputs) input_gradients.push_back(v.take_gradient());
    if (observer) observer->after_backward(use);
    return input_gradients;
  };
  // Whether a parameter inside needs a gradient is not visible here; a region is always worth a node.
  const Variable always(Tensor(), true, "region");
  return Node::record("region", inputs, std::move(outputs), std::move(backward_of_region), {always});
}

}  // namespace trencadis
