#include "runtime/cpu/streams.h"

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
}  // namespace

class WorkerStream::Marker final : public Event::State {
 public:
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
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool happened_ = false;
  std::exception_ptr error_;
};

WorkerStream::WorkerStream(std::string name) : name_(std::move(name)), thread_([this] { loop(); }) {}

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
  push({std::move(what), std::move(work), nullptr});
}

Event WorkerStream::record() {
  auto marker = std::make_shared<Marker>();
  push({"record an event", nullptr, marker});
  return Event(marker);
}

void WorkerStream::wait(const Event& event) {
  if (!event.state()) return;
  push({"wait for an event", [event] { event.wait_on_host(); }, nullptr});
}

void WorkerStream::synchronize() { record().wait_on_host(); }

void WorkerStream::run(Item& item) {
  if (item.marker) {
    item.marker->set(error_);
  } else if (!error_) {
    try {
      item.work();
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
