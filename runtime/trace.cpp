#include "runtime/trace.h"

namespace trencadis {

void Tracer::start(size_t most) {
  const std::lock_guard lock(mutex_);
  spans_.clear();
  most_ = most;
  dropped_ = 0;
  on_.store(true, std::memory_order_relaxed);
}

void Tracer::add(const std::string& lane, std::string name, Clock::time_point begin, Clock::time_point end) {
  const std::lock_guard lock(mutex_);
  if (spans_.size() < most_)
    spans_.push_back({lane, std::move(name), begin, end});
  else
    ++dropped_;
}

std::vector<Tracer::Span> Tracer::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(spans_, {});
}

int64_t Tracer::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace trencadis
