// Module: a named tree of parameters and of other modules.
//
// A parameter is described (shape, how it is initialised) when its module is built, and has memory only once somebody
// binds some: a test by allocate_parameters(), training by ZeRO units. So a model of any size can be built, planned and
// sharded without ever existing as a whole. Names are PyTorch's: "h.0.attn.c_attn.weight".
#pragma once

#include <string>
#include <vector>

#include "autograd/variable.h"
#include "runtime/context.h"

namespace trencadis {

// How a parameter starts: every element is a function of (seed, parameter's name, element index).
struct Initialiser {
  enum class Kind { zeros, ones, normal };
  Kind kind = Kind::zeros;
  float stddev = 0;

  static Initialiser zeros() { return {}; }
  static Initialiser ones() { return {Kind::ones, 0}; }
  static Initialiser normal(float stddev) { return {Kind::normal, stddev}; }
};

struct Parameter {
  std::string name;  // full, from the root of the tree
  Shape shape;       // global, also where only a shard of it is in memory
  Initialiser initialiser;
  Variable variable;  // undefined value until memory is bound

  int64_t size() const { return element_count(shape); }
  bool trainable() const { return variable.requires_grad(); }
  void freeze() { variable.set_requires_grad(false); }
};

// Writes elements [first, first + memory.size) of the parameter's initial value: any slice, on any rank, the same bits.
void initialise(View memory, const Parameter& parameter, int64_t first, uint64_t seed, Kernels& kernels);

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // All parameters below this module, in the order of registration, depth first.
  std::vector<Parameter*> parameters();
  // Gives every parameter and module its full name; the owner of the tree's root calls it once the tree stands.
  void assign_names(const std::string& prefix = "");
  const std::string& full_name() const { return full_name_; }

 protected:
  // `parameter` and `child` are members of the derived class: registered by address.
  void add_parameter(std::string name, Parameter& parameter, Shape shape, Initialiser initialiser);
  void add_child(std::string name, Module& child);

 private:
  std::string full_name_;
  std::vector<std::pair<std::string, Parameter*>> parameters_;
  std::vector<std::pair<std::string, Module*>> children_;
};

// For use without ZeRO: allocates each parameter on its own and initialises it.
void allocate_parameters(Module& module, Context& context, uint64_t seed);

// What is sharded as one: its parameters are gathered, reduced and freed together. A model lists its units; regions
// name them by index.
struct Unit {
  std::string name;
  std::vector<Parameter*> parameters;
};

// What a forward pass needs to know besides its input.
struct ForwardState {
  bool training = false;  // dropout is active
  uint64_t seed = 0;      // with step and first_sample the source of dropout masks (runtime/random.h)
  int64_t step = 0;
  int64_t first_sample = 0;  // global number of the batch's first sample
};

}  // namespace trencadis
