// The CPU's two streams. InlineStream: the compute stream, which does its work at once on the calling thread, so that
// a training step is ordinary code in a debugger. WorkerStream: a queue and a thread, for communication that runs
// beside the compute.
//
// Invariants: a WorkerStream runs its work one after another in the order of enqueue(); an event it recorded happens
// when all work before it is done or dropped, never earlier; an event always happens, so nobody waits forever for a
// stream that failed. All members may be called from any thread.
//
// Given a tracer that is on, both record a span per piece of work, under its name, and per wait that took time.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "runtime/stream.h"
#include "runtime/trace.h"

namespace trencadis {

class InlineStream final : public Stream {
 public:
  explicit InlineStream(std::string name) : name_(std::move(name)) {}

  // Errors of the work come out of here.
  void enqueue(std::string what, std::function<void()> work) override;
  Event record() override { return {}; }  // everything enqueued has been done
  void wait(const Event& event) override;
  void synchronize() override {}
  const std::string& name() const override { return name_; }

  void trace_with(Tracer& tracer) { tracer_ = &tracer; }

 private:
  std::string name_;
  Tracer* tracer_ = nullptr;
};

class WorkerStream final : public Stream {
 public:
  // tracer: null, or outlives the stream.
  explicit WorkerStream(std::string name, Tracer* tracer = nullptr);
  ~WorkerStream() override;  // does what is queued, then joins the thread
  WorkerStream(const WorkerStream&) = delete;
  WorkerStream& operator=(const WorkerStream&) = delete;

  void enqueue(std::string what, std::function<void()> work) override;
  Event record() override;
  // If the event's stream failed, so does this one.
  void wait(const Event& event) override;
  void synchronize() override;
  const std::string& name() const override { return name_; }

 private:
  class Marker;
  struct Item {
    std::string what;
    std::function<void()> work;
    std::shared_ptr<Marker> marker;  // of record(); such an item has no work
    bool is_wait = false;
  };
  void push(Item item);
  void loop();
  void run(Item& item);

  const std::string name_;
  Tracer* const tracer_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> queue_;
  std::string last_what_;  // the last work put into the queue while the tracer was on
  bool stop_ = false;
  std::exception_ptr error_;  // the first; touched by the worker alone
  std::thread thread_;        // last: starts when the rest is ready
};

}  // namespace trencadis
