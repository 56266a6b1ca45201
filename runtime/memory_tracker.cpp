#include "runtime/memory_tracker.h"

#include <algorithm>
#include <utility>

namespace trencadis {

const char* name_of(MemoryCategory category) {
  static constexpr const char* names[] = {"parameter",  "gradient",      "optimizer",
                                          "activation", "communication", "workspace"};
  return names[static_cast<int>(category)];
}

void MemoryTracker::allocated(MemoryCategory category, int64_t bytes, const std::string& label) {
  change(category, bytes, label);
}

void MemoryTracker::freed(MemoryCategory category, int64_t bytes, const std::string& label) {
  change(category, -bytes, label);
}

void MemoryTracker::change(MemoryCategory category, int64_t delta, const std::string& label) {
  const std::lock_guard lock(mutex_);
  const int c = static_cast<int>(category);
  live_[c] += delta;
  live_total_ += delta;
  peak_[c] = std::max(peak_[c], live_[c]);
  peak_total_ = std::max(peak_total_, live_total_);
  if (delta > 0) ++allocations_;
  if (recording_) timeline_.push_back({std::chrono::steady_clock::now(), category, delta, label});
}

BytesByCategory MemoryTracker::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

BytesByCategory MemoryTracker::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

int64_t MemoryTracker::live_total() const {
  const std::lock_guard lock(mutex_);
  return live_total_;
}

int64_t MemoryTracker::peak_total() const {
  const std::lock_guard lock(mutex_);
  return peak_total_;
}

int64_t MemoryTracker::allocation_count() const {
  const std::lock_guard lock(mutex_);
  return allocations_;
}

void MemoryTracker::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = live_;
  peak_total_ = live_total_;
}

BytesByCategory MemoryTracker::start_timeline() {
  const std::lock_guard lock(mutex_);
  recording_ = true;
  timeline_.clear();
  return live_;
}

std::vector<MemoryTracker::Entry> MemoryTracker::take_timeline(bool keep_recording) {
  const std::lock_guard lock(mutex_);
  recording_ = keep_recording;
  return std::exchange(timeline_, {});
}

}  // namespace trencadis
