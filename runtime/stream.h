// Stream and Event: ordered work, and the only way to order two streams.
//
// A stream runs what is enqueued on it in order. Two streams are unordered unless one waits for an event that the other
// recorded: `event = a.record(); b.wait(event);`. The CPU compute stream runs work at once, inside enqueue(); a CPU
// communication stream is a worker thread; a CUDA stream is a cudaStream_t.
//
// Errors: work that throws on a worker makes the stream fail: later work is dropped, and the first error is thrown
// again from every wait for an event of that stream, and from synchronize().
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace trencadis {

// What record() returns. Copies share one state. A default-constructed event has always happened.
class Event {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual bool happened() const = 0;
    // Blocks the calling host thread; throws the stream's error if it failed before reaching the event.
    virtual void wait_on_host() = 0;
    // What was enqueued last before the event, for traces; may be empty.
    virtual std::string after_what() const { return {}; }
  };

  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}

  bool happened() const { return !state_ || state_->happened(); }
  void wait_on_host() const {
    if (state_) state_->wait_on_host();
  }
  State* state() const { return state_.get(); }

 private:
  std::shared_ptr<State> state_;
};

class Stream {
 public:
  virtual ~Stream() = default;
  // Runs host code in stream order (collectives on the CPU, tests). `what` is shown in errors and traces.
  virtual void enqueue(std::string what, std::function<void()> work) = 0;
  virtual Event record() = 0;
  // Work enqueued after this starts only when the event has happened.
  virtual void wait(const Event& event) = 0;
  // Blocks the host until the stream is empty; throws the stream's error.
  virtual void synchronize() = 0;
  virtual const std::string& name() const = 0;
};

}  // namespace trencadis
