#include "layers/module.h"

namespace trencadis {

void initialise(View memory, const Parameter& parameter, int64_t first, uint64_t seed, Kernels& kernels) {
  CHECK(first >= 0 && first + memory.size <= parameter.size(), "elements [{}, {}) of {} with {} elements", first,
        first + memory.size, parameter.name, parameter.size());
  switch (parameter.initialiser.kind) {
    case Initialiser::Kind::zeros:
      return kernels.fill(memory, 0.0f);
    case Initialiser::Kind::ones:
      return kernels.fill(memory, 1.0f);
    case Initialiser::Kind::normal:
      return kernels.normal(memory, parameter.initialiser.stddev, random_key(seed, hash_name(parameter.name)), first);
  }
}

void Module::add_parameter(std::string name, Parameter& parameter, Shape shape, Initialiser initialiser) {
  parameter.name = name;
  parameter.shape = std::move(shape);
  parameter.initialiser = initialiser;
  parameter.variable = Variable(Tensor(), true, name);
  parameters_.emplace_back(std::move(name), &parameter);
}

void Module::add_child(std::string name, Module& child) { children_.emplace_back(std::move(name), &child); }

std::vector<Parameter*> Module::parameters() {
  std::vector<Parameter*> all;
  for (auto& [name, parameter] : parameters_) all.push_back(parameter);
  for (auto& [name, child] : children_)
    for (Parameter* parameter : child->parameters()) all.push_back(parameter);
  return all;
}

void Module::assign_names(const std::string& prefix) {
  full_name_ = prefix;
  const std::string dot = prefix.empty() ? "" : prefix + ".";
  for (auto& [name, parameter] : parameters_) {
    parameter->name = dot + name;
    parameter->variable.set_name(parameter->name);
  }
  for (auto& [name, child] : children_) child->assign_names(dot + name);
}

void allocate_parameters(Module& module, Context& context, uint64_t seed) {
  for (Parameter* parameter : module.parameters()) {
    Tensor memory = Tensor::empty(context, parameter->shape, DType::f32, MemoryCategory::parameter, parameter->name);
    initialise(memory, *parameter, 0, seed, context.kernels());
    parameter->variable.bind(std::move(memory));
  }
}

}  // namespace trencadis
