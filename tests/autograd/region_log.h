// An observer of regions that writes down what it hears, a line a moment.
#pragma once

#include <string>
#include <vector>

#include "autograd/region.h"

namespace trencadis::test {

using Log = std::vector<std::string>;

struct RegionLog : RegionObserver {
  Log log;
  void before_forward(const RegionUse& use) override { log.push_back(line("before_forward", use)); }
  void after_forward(const RegionUse& use) override { log.push_back(line("after_forward", use)); }
  void before_backward(const RegionUse& use) override { log.push_back(line("before_backward", use)); }
  void after_backward(const RegionUse& use) override { log.push_back(line("after_backward", use)); }

 private:
  virtual std::string line(const char* moment, const RegionUse& use) const = 0;
};

}  // namespace trencadis::test
