// Where memory lives and where kernels run.
#pragma once

#include <fmt/format.h>

#include <string>

namespace trencadis {

struct Device {
  enum class Kind { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;

  bool operator==(const Device&) const = default;
  std::string name() const { return kind == Kind::cpu ? "cpu" : fmt::format("cuda:{}", index); }
};

}  // namespace trencadis
