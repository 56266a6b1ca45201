// UnitModule: a model that is cut into units, each of which it runs as a region of the tape.
//
// Sharding needs three things of a model: which parameters go together (units), when each unit is used (regions), and
// somebody to tell it to (the observer). A model that derives from UnitModule says the first in its constructor, by
// add_unit() where it would say add_child(), and the second in its forward, by run() around what reads a unit's
// parameters; the third is the engine's business. Without an observer it computes the same.
//
// Invariant: every parameter of the model is in exactly one unit; units() throws otherwise.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "autograd/region.h"
#include "layers/module.h"

namespace trencadis {

class UnitModule : public Module {
 public:
  // In the order in which they were added; regions name them by index. A model that nobody has named is the root of its
  // tree: its parameters get their names here.
  std::vector<Unit> units();
  // Who sees the regions; null: nobody. Must outlive the graphs recorded with it.
  void set_observer(RegionObserver* observer) { observer_ = observer; }

 protected:
  // From a unit's input, cut off from the graph outside, to its output. With recompute it is called again in backward:
  // what it captures must then live, unchanged, until there.
  using UnitFunction = std::function<Variable(const Variable& x)>;

  // A child and the unit of its parameters, both of this name.
  void add_unit(std::string name, Module& child);
  // A unit of several modules that are children already, or theirs.
  void add_unit(std::string name, std::initializer_list<Module*> parts);

  // A use of the unit that `part` was added to, under the unit's name. The caller may give it another name, and say what
  // it knows of the backward.
  RegionUse use_of(const Module& part) const;
  // The same for the unit whose output the loss is computed from: backward begins with it, so what was gathered for
  // forward stays until then.
  RegionUse last_use_of(const Module& part) const;

  // One use of a unit: f(x). x may be undefined, where f reads ids or a batch of its own and no variable. f may read
  // parameters of this unit and constants besides x, but no variable that needs a gradient from outside. recompute: keep
  // x alone from forward to backward, and call f again there (activation checkpointing). A unit with several inputs or
  // outputs calls region() itself.
  Variable run(const RegionUse& use, const Variable& x, UnitFunction f, bool recompute = false) const;
  Variable run(const Module& part, const Variable& x, UnitFunction f) const {
    return run(use_of(part), x, std::move(f));
  }
  // part.forward(x)
  template <typename Part>
  Variable run(const Part& part, const Variable& x) const {
    return run(use_of(part), x, [&part](const Variable& inner) { return part.forward(inner); });
  }

  RegionObserver* observer() const { return observer_; }

 private:
  struct Parts {
    std::string name;
    std::vector<Module*> modules;
  };
  std::vector<Parts> parts_;  // by unit
  RegionObserver* observer_ = nullptr;
};

}  // namespace trencadis
