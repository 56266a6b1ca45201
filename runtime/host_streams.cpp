#include "runtime/host_streams.h"

#include <typeinfo>

#include "runtime/check.h"

namespace trencadis {

namespace {
// The error in flight, told where it happened. A class derived from Error stays what it is: main reads the exit code
// from it, and whoever threw it has said enough.
std::exception_ptr current_error(const std::string& stream, const std::string& what) {
  try {
    throw;
  } catch (const std::exception& error) {
    if (dynamic_cast<const Error*>(&error) && typeid(error) != typeid(Error)) return std::current_exception();
    return std::make_exception_ptr(Error(fmt::format("{} (while stream {} did: {})", error.what(), stream, what)));
  } catch (...) {
    return std::current_exception();
  }
}

bool traced(const Tracer* tracer) { return tracer && tracer->on(); }

// Waits on this thread, which works off the lane `lane`.
void wait_and_trace(const Event& event, Tracer* tracer, const std::string& lane) {
  if (!traced(tracer) || event.happened()) return event.wait_on_host();
  const auto begin = Tracer::Clock::now();
  event.wait_on_host();
  const auto end = Tracer::Clock::now();
  if (end - begin < kShortestTracedWait) return;
  const std::string what = event.state()->after_what();
  tracer->add(lane, "wait for " + (what.empty() ? "an event" : what), begin, end);
}
}  // namespace

void InlineStream::enqueue(std::string what, std::function<void()> work) {
  if (!traced(tracer_)) return work();
  const TraceScope scope(*tracer_, name_, [&] { return what; });
  work();
}

void InlineStream::wait(const Event& event) { wait_and_trace(event, tracer_, name_); }

class WorkerStream::Marker final : public Event::State {
 public:
  explicit Marker(std::string after_what) : after_what_(std::move(after_what)) {}
  std::string after_what() const override { return after_what_; }
  bool happened() const override {
    const std::lock_guard lock(mutex_);
    return happened_;
  }
  void wait_on_host() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return happened_; });
    if (error_) std::rethrow_exception(error_);
  }
  void set(std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex_);
      happened_ = true;
      error_ = std::move(error);
    }
    changed_.notify_all();
  }

 private:
  const std::string after_what_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool happened_ = false;
  std::exception_ptr error_;
};

WorkerStream::WorkerStream(std::string name, Tracer* tracer)
    : name_(std::move(name)), tracer_(tracer), thread_([this] { loop(); }) {}

WorkerStream::~WorkerStream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void WorkerStream::push(Item item) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
  }
  wake_.notify_one();
}

void WorkerStream::enqueue(std::string what, std::function<void()> work) {
  if (traced(tracer_)) {
    const std::lock_guard lock(mutex_);
    last_what_ = what;
  }
  push({std::move(what), std::move(work), nullptr});
}

Event WorkerStream::record() {
  std::string after_what;
  if (traced(tracer_)) {
    const std::lock_guard lock(mutex_);
    after_what = last_what_;
  }
  auto marker = std::make_shared<Marker>(std::move(after_what));
  push({"record an event", nullptr, marker});
  return Event(marker);
}

void WorkerStream::wait(const Event& event) {
  if (!event.state()) return;
  push({"wait for an event", [this, event] { wait_and_trace(event, tracer_, name_); }, nullptr, /*is_wait=*/true});
}

void WorkerStream::synchronize() { record().wait_on_host(); }

void WorkerStream::run(Item& item) {
  if (item.marker) {
    item.marker->set(error_);
  } else if (!error_) {
    const bool trace = traced(tracer_) && !item.is_wait;  // a wait traces itself, if it takes time
    const auto begin = trace ? Tracer::Clock::now() : Tracer::Clock::time_point();
    try {
      item.work();
      if (trace) tracer_->add(name_, item.what, begin, Tracer::Clock::now());
    } catch (...) {
      error_ = current_error(name_, item.what);
    }
  }
}

void WorkerStream::loop() {
  for (;;) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    run(item);
    // `item` ends here: what the work had captured is released before anything enqueued later runs.
  }
}

}  // namespace trencadis
