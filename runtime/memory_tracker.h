// MemoryTracker: how many bytes are alive, per category, now and at the peak.
//
// It counts the bytes that were asked for, not what an allocator rounds them to, so that the numbers can be predicted
// to the byte. Invariant: live bytes per category = the sum over Storages of that category that are materialised.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace trencadis {

enum class MemoryCategory { parameter, gradient, optimizer, activation, communication, workspace };
inline constexpr int kMemoryCategories = 6;
const char* name_of(MemoryCategory category);

using BytesByCategory = std::array<int64_t, kMemoryCategories>;

class MemoryTracker {
 public:
  // One change of the live bytes; delta is negative when memory is given back.
  struct Entry {
    std::chrono::steady_clock::time_point time;
    MemoryCategory category;
    int64_t delta;
    std::string label;  // the storage's name
  };

  // Thread-safe, all of them.
  void allocated(MemoryCategory category, int64_t bytes, const std::string& label);
  void freed(MemoryCategory category, int64_t bytes, const std::string& label);

  BytesByCategory live() const;
  // The largest live bytes of each category since the last reset; categories peak at different moments.
  BytesByCategory peak() const;
  int64_t live_total() const;
  int64_t peak_total() const;  // the largest sum over categories at one moment
  int64_t allocation_count() const;
  void reset_peak();

  // The timeline costs a vector entry per change, so it is recorded only between start and take.
  // start returns the live bytes that the first entry changes;
  // `keep_recording`: the next take goes on where this ended.
  BytesByCategory start_timeline();
  std::vector<Entry> take_timeline(bool keep_recording = false);

 private:
  void change(MemoryCategory category, int64_t delta, const std::string& label);

  mutable std::mutex mutex_;
  BytesByCategory live_{}, peak_{};
  int64_t live_total_ = 0, peak_total_ = 0, allocations_ = 0;
  bool recording_ = false;
  std::vector<Entry> timeline_;
};

}  // namespace trencadis
