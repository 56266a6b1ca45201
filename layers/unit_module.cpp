#include "layers/unit_module.h"

#include <algorithm>
#include <map>

namespace trencadis {

void UnitModule::add_unit(std::string name, Module& child) {
  add_child(name, child);
  add_unit(std::move(name), {&child});
}

void UnitModule::add_unit(std::string name, std::initializer_list<Module*> parts) {
  parts_.push_back({std::move(name), parts});
}

std::vector<Unit> UnitModule::units() {
  if (full_name().empty()) assign_names();
  std::vector<Unit> units;
  std::map<const Parameter*, std::string> unit_of;
  for (const Parts& parts : parts_) {
    Unit unit{parts.name, {}};
    for (Module* module : parts.modules)
      for (Parameter* parameter : module->parameters()) {
        const auto [other, first] = unit_of.emplace(parameter, parts.name);
        CHECK(first, "{} is in the units '{}' and '{}'; a parameter belongs to one, whatever uses it", parameter->name,
              other->second, parts.name);
        unit.parameters.push_back(parameter);
      }
    units.push_back(std::move(unit));
  }
  for (const Parameter* parameter : parameters())
    CHECK(unit_of.contains(parameter), "{} is in no unit; add its module by add_unit() instead of add_child()",
          parameter->name);
  return units;
}

RegionUse UnitModule::use_of(const Module& part) const {
  const auto holds_part = [&](const Parts& parts) {
    return std::find(parts.modules.begin(), parts.modules.end(), &part) != parts.modules.end();
  };
  const auto found = std::find_if(parts_.begin(), parts_.end(), holds_part);
  CHECK(found != parts_.end(), "module '{}' is none of the {} units of the model; add it by add_unit()",
        part.full_name(), parts_.size());
  RegionUse use;
  use.unit = static_cast<int>(found - parts_.begin());
  use.name = found->name;
  return use;
}

RegionUse UnitModule::last_use_of(const Module& part) const {
  RegionUse use = use_of(part);
  use.backward_follows = true;
  return use;
}

Variable UnitModule::run(const RegionUse& use, const Variable& x, UnitFunction f, bool recompute) const {
  std::vector<Variable> inputs;
  if (x.defined()) inputs.push_back(x);
  return region(observer_, use, recompute, inputs, [f = std::move(f)](const std::vector<Variable>& in) {
    return std::vector<Variable>{f(in.empty() ? Variable() : in[0])};
  })[0];
}

}  // namespace trencadis
