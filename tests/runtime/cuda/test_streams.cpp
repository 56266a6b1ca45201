// CudaStream: order, events between streams and devices, and errors of host code.
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "runtime/check.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/streams.h"
#include "runtime/host_streams.h"

#undef CHECK
#include <doctest/doctest.h>

using namespace trencadis;

namespace {

struct Streams {
  std::shared_ptr<EventPool> pool = std::make_shared<EventPool>();
  CudaStream a{"a", pool}, b{"b", pool};
};

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("host code runs in stream order, and an event carries it to another stream") {
  Streams s;
  int value = 0;  // ordered by streams and events alone
  for (int i = 0; i < 10; ++i) {
    s.a.enqueue("double", [&] { value *= 2; });
    s.b.wait(s.a.record());
    s.b.enqueue("add one", [&] { value += 1; });
    s.a.wait(s.b.record());
  }
  s.a.synchronize();
  CHECK(value == 1023);
}

TEST_CASE("an event happens when what is before it is done, and stays so when its handle is used again") {
  Streams s;
  std::atomic<bool> done = false;
  CHECK(Event().happened());
  s.a.enqueue("set a flag", [&] { done = true; });
  const Event event = s.a.record();
  CHECK(event.state()->after_what() == "set a flag");
  event.wait_on_host();
  CHECK(done);
  CHECK(event.happened());
  { const Event gone = s.b.record(); }
  const Event later = s.b.record();
  later.wait_on_host();
  CHECK(event.happened());
}

TEST_CASE("a wait for an event of the CPU is done by the host") {
  Streams s;
  WorkerStream worker("worker");
  int value = 0;
  worker.enqueue("set", [&] { value = 7; });
  s.a.wait(worker.record());
  CHECK(value == 7);
  s.a.wait(Event());
  CHECK_THROWS_WITH_AS(CudaStream::of(worker), doctest::Contains("worker"), Error);
}

TEST_CASE("the first error of host code drops what is after it, and comes out of every later wait") {
  Streams s;
  std::atomic<int> ran = 0;
  s.a.enqueue("first", [&] { ++ran; });
  const Event before = s.a.record();
  s.a.enqueue("break", [] { throw Error("it broke"); });
  s.a.enqueue("never", [&] { ran += 100; });
  s.a.enqueue("break again", [] { throw Error("another"); });
  const Event after = s.a.record();

  const std::string text = message_of([&] { after.wait_on_host(); });
  CHECK(text == "it broke (while stream a did: break)");
  before.wait_on_host();  // the stream had not failed there
  CHECK(message_of([&] { s.a.synchronize(); }) == text);
  CHECK(message_of([&] { s.a.synchronize(); }) == text);
  CHECK(ran == 1);
}

TEST_CASE("an error goes over to a stream that waits for it, not to others") {
  Streams s;
  std::atomic<int> ran = 0;
  const Event before = s.a.record();
  s.a.enqueue("break", [] { throw UsageError("wrong flag"); });
  s.b.wait(before);
  s.b.enqueue("fine", [&] { ++ran; });
  s.b.synchronize();
  s.b.wait(s.a.record());
  s.b.enqueue("never", [&] { ran += 100; });
  CHECK_THROWS_WITH_AS(s.b.synchronize(), "wrong flag", UsageError);  // the class is kept
  CHECK(ran == 1);
  CHECK_THROWS_AS(s.a.synchronize(), UsageError);
}

TEST_CASE("what host code captured is released when it is done or dropped") {
  Streams s;
  const auto token = std::make_shared<int>(1);
  s.a.enqueue("hold", [token] {});
  s.a.enqueue("break", [token] { throw Error("x"); });
  s.a.enqueue("dropped", [token] {});
  CHECK_THROWS_AS(s.a.synchronize(), Error);
  CHECK(token.use_count() == 1);
}
