#include "autograd/variable.h"

#include "runtime/context.h"

namespace trencadis {

Variable::Variable(Tensor value, bool requires_grad, std::string name) : state_(std::make_shared<State>()) {
  state_->value = std::move(value);
  state_->requires_grad = requires_grad;
  state_->name = std::move(name);
}

void Variable::lend_gradient(Tensor memory) {
  CHECK(!state_->value.defined() || memory.shape() == state_->value.shape(),
        "gradient memory of shape {} is lent to {} of shape {}", to_string(memory.shape()), state_->name,
        to_string(state_->value.shape()));
  state_->gradient = std::move(memory);
  state_->gradient_written = false;
  state_->gradient_lent = true;
}

Tensor Variable::take_gradient() {
  Tensor gradient = std::move(state_->gradient);
  state_->gradient = Tensor();
  state_->gradient_lent = false;
  if (!std::exchange(state_->gradient_written, false)) return {};
  return gradient;
}

GradientTarget Variable::gradient_target() {
  if (!requires_grad()) return {};
  CHECK(!state_->node, "a gradient target is asked of {}, which is not a leaf", state_->name);
  const Tensor before = state_->gradient;
  // Memory that an edge delivered may be seen by others too (an addition hands one gradient to both its inputs).
  const bool shared = before.defined() && !state_->gradient_lent && before.storage().use_count() > 2;
  if (!before.defined() || shared)
    state_->gradient = Tensor::empty(state_->value.context(), state_->value.shape(), state_->value.dtype(),
                                     MemoryCategory::gradient, "gradient of " + state_->name);
  if (shared) before.context().kernels().copy(state_->gradient, before);
  return {state_->gradient.view(), std::exchange(state_->gradient_written, true)};
}

Edge::Edge(const Variable& variable) {
  if (!variable.requires_grad()) return;
  node = variable.state_->node;
  output = variable.state_->output;
  if (!node) leaf = variable.state_;
}

namespace {
// The state of this thread's tape.
thread_local struct {
  bool recording = true;       // grad mode
  uint64_t next_sequence = 0;  // of the next node
} tape;
}  // namespace

bool grad_enabled() { return tape.recording; }
GradMode::GradMode(bool enabled) : previous_(tape.recording) { tape.recording = enabled; }
GradMode::~GradMode() { tape.recording = previous_; }

std::vector<Variable> Node::record(const char* name, const std::vector<Variable>& inputs, Tensors outputs,
                                   BackwardFunction backward, const std::vector<Variable>& parameters) {
  bool needed = false;
  for (const auto* list : {&inputs, &parameters})
    for (const Variable& v : *list) needed = needed || v.requires_grad();
  needed = needed && tape.recording;

  std::shared_ptr<Node> node;
  if (needed) {
    node.reset(new Node);
    node->name_ = name;
    node->sequence_ = tape.next_sequence++;
    for (const Variable& input : inputs) node->inputs_.emplace_back(input);
    node->backward_ = std::move(backward);
    node->output_gradients_.resize(outputs.size());
  }
  std::vector<Variable> variables;
  for (size_t i = 0; i < outputs.size(); ++i) {
    variables.emplace_back(std::move(outputs[i]), needed);
    variables.back().state_->node = node;
    variables.back().state_->output = static_cast<int>(i);
  }
  return variables;
}

Variable record(const char* name, const std::vector<Variable>& inputs, Tensor output, BackwardFunction backward,
                const std::vector<Variable>& parameters) {
  return Node::record(name, inputs, {std::move(output)}, std::move(backward), parameters)[0];
}

// A chain of nodes that own each other would be destroyed recursively, as deep as the graph; this
// takes it apart in a loop.
Node::~Node() {
  std::vector<std::shared_ptr<Node>> doomed;
  const auto take = [&](std::vector<Edge>& edges) {
    // One edge at a time: a node that two edges share (x + x) is doomed with the second.
    for (Edge& edge : edges) {
      std::shared_ptr<Node> node = std::move(edge.node);
      if (node && node.use_count() == 1) doomed.push_back(std::move(node));
    }
  };
  take(inputs_);
  while (!doomed.empty()) {
    const std::shared_ptr<Node> node = std::move(doomed.back());
    doomed.pop_back();
    take(node->inputs_);
  }
}

}  // namespace trencadis
