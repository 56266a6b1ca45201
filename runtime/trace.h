// Tracer: when did what run on this rank? Named spans of time on lanes, one lane per stream.
//
// It belongs to a Context and is off until somebody asks; then a span that would be recorded costs one relaxed load.
// Streams record the work that was enqueued on them under its own name ("all_gather parameters of h.3") and waits that
// took time; the ZeRO engine records the compute of each unit ("h.3 forward"); the trainer steps and what is around
// them. The times are the host's: on the CPU, whose compute stream works inside the call, that is when things ran.
//
// Invariant: spans of one lane nest or are apart, they never cross. A lane belongs to one thread, and every span lies
// inside one call on it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace trencadis {

class Tracer {
 public:
  using Clock = std::chrono::steady_clock;

  struct Span {
    std::string lane;  // the stream's name
    std::string name;
    Clock::time_point begin, end;
  };

  // Thread-safe, all of them.
  bool on() const { return on_.load(std::memory_order_relaxed); }
  // Records from now on; once there are `most` spans, further ones are only counted.
  void start(size_t most = size_t{1} << 20);
  void stop() { on_.store(false, std::memory_order_relaxed); }
  void add(const std::string& lane, std::string name, Clock::time_point begin, Clock::time_point end);
  // What was recorded since start() or the last take(), in the order in which spans ended.
  std::vector<Span> take();
  int64_t dropped() const;  // since start()

 private:
  std::atomic<bool> on_{false};
  mutable std::mutex mutex_;
  size_t most_ = 0;
  int64_t dropped_ = 0;
  std::vector<Span> spans_;
};

// A span from here to the end of the scope. `name` is called only when the tracer is on.
template <typename Name>
class TraceScope {
 public:
  TraceScope(Tracer& tracer, const std::string& lane, Name name)
      : tracer_(tracer.on() ? &tracer : nullptr), lane_(lane), name_(std::move(name)) {
    if (tracer_) begin_ = Tracer::Clock::now();
  }
  ~TraceScope() {
    if (tracer_) tracer_->add(lane_, name_(), begin_, Tracer::Clock::now());
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Tracer* const tracer_;
  const std::string& lane_;
  Name name_;
  Tracer::Clock::time_point begin_;
};

// Waits shorter than this are not worth a span.
inline constexpr std::chrono::microseconds kShortestTracedWait{20};

}  // namespace trencadis
