// UseOrder: in which order units needed their parameters, learned from the pass before; what prefetching goes by.
//
// A pass is one micro-batch, forward and backward, or one evaluation. Registration order is no guide: a model may run
// its blocks in any order, some twice, some not at all. The order depends on the program, which is the same on all
// ranks, so all ranks prefetch alike. A use that was not expected finds its place again at the next one that was; while
// lost, nothing is predicted.
#pragma once

#include <cstddef>
#include <vector>

namespace trencadis {

class UseOrder {
 public:
  void begin_pass() {
    if (!seen_.empty()) expected_ = std::move(seen_);
    seen_.clear();
    next_ = 0;
    lost_ = false;
  }

  // Returns the units whose uses were expected before this one and did not come.
  std::vector<int> saw(int unit) {
    seen_.push_back(unit);
    std::vector<int> skipped;
    size_t at = next_;
    for (; at < expected_.size() && expected_[at] != unit; ++at) skipped.push_back(expected_[at]);
    lost_ = at >= expected_.size();
    if (lost_) return {};
    next_ = at + 1;
    return skipped;
  }

  // The `count` uses expected after the one seen last; fewer at the end of the pass.
  std::vector<int> next(int count) const {
    std::vector<int> units;
    for (size_t at = next_; !lost_ && at < expected_.size() && static_cast<int>(units.size()) < count; ++at)
      units.push_back(expected_[at]);
    return units;
  }

 private:
  std::vector<int> expected_, seen_;
  size_t next_ = 0;
  bool lost_ = false;
};

}  // namespace trencadis
