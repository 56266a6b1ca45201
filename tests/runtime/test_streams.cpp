// InlineStream and WorkerStream: order, events between streams, errors, and a worker that sleeps when idle.
#include <time.h>

#include <chrono>
#include <thread>

#include "kernel_test.h"
#include "runtime/host_streams.h"

using namespace trencadis;
using namespace trencadis::test;
using namespace std::chrono_literals;

TEST_CASE("the compute stream does its work inside enqueue") {
  Context context(make_cpu_backend());
  Stream& stream = context.compute_stream();
  bool done = false;
  stream.enqueue("set a flag", [&] { done = true; });
  CHECK(done);
  CHECK(stream.record().happened());
  expect_error([&] { stream.enqueue("fail", [] { throw Error("at once"); }); }, "at once");
  stream.synchronize();
  CHECK(stream.name() == "compute");
}

TEST_CASE("a worker keeps the order, beside the calling thread") {
  WorkerStream stream("comm");
  std::vector<int> seen;
  const auto caller = std::this_thread::get_id();
  bool other_thread = false;
  for (int i = 0; i < 1000; ++i) stream.enqueue("append", [&, i] { seen.push_back(i); });
  stream.enqueue("look", [&] { other_thread = std::this_thread::get_id() != caller; });
  stream.synchronize();
  REQUIRE(seen.size() == 1000);
  for (int i = 0; i < 1000; ++i) REQUIRE(seen[static_cast<size_t>(i)] == i);
  CHECK(other_thread);
}

TEST_CASE("an event happens after the work before it, and not earlier") {
  WorkerStream stream("comm");
  std::atomic<bool> gate{false}, done{false};
  stream.enqueue("wait for the test", [&] {
    while (!gate) std::this_thread::sleep_for(1ms);
    done = true;
  });
  const Event event = stream.record();
  CHECK_FALSE(event.happened());
  gate = true;
  event.wait_on_host();
  CHECK(done);
  CHECK(event.happened());
  CHECK(Event().happened());
  Event().wait_on_host();
}

TEST_CASE("events order two workers, and the compute stream after a worker") {
  for (int round = 0; round < 20; ++round) {
    WorkerStream first("first"), second("second");
    InlineStream compute("compute");
    int value = 0;
    first.enqueue("set slowly", [&] {
      std::this_thread::sleep_for(2ms);
      value = 1;
    });
    second.wait(first.record());
    second.enqueue("double", [&] { value = value * 2 + 1; });
    compute.wait(second.record());
    compute.enqueue("read", [&] { CHECK(value == 3); });
  }
}

TEST_CASE("a failed stream drops later work and tells everyone who waits") {
  WorkerStream stream("comm");
  const Event before = stream.record();
  stream.enqueue("gather h.0", [] { throw Error("peer is gone"); });
  bool ran = false;
  stream.enqueue("gather h.1", [&] { ran = true; });
  const Event after = stream.record();
  before.wait_on_host();  // reached before the failure
  for (int i = 0; i < 2; ++i) {
    expect_error([&] { after.wait_on_host(); }, "peer is gone");
    expect_error([&] { stream.synchronize(); }, "gather h.0");  // the first error, with its place
  }
  CHECK(after.happened());
  CHECK_FALSE(ran);

  WorkerStream follower("compute 2");
  follower.wait(after);
  follower.enqueue("use h.0", [&] { ran = true; });
  expect_error([&] { follower.synchronize(); }, "peer is gone");
  CHECK_FALSE(ran);
}

TEST_CASE("an error keeps its class") {
  WorkerStream stream("comm");
  stream.enqueue("read", [] { throw DataError("checkpoint is torn"); });
  CHECK_THROWS_AS(stream.synchronize(), DataError);
  WorkerStream other("comm");
  other.enqueue("index", [] { std::vector<int>().at(3); });
  CHECK_THROWS_AS(other.synchronize(), Error);
}

TEST_CASE("the destructor does what is queued") {
  int count = 0;
  {
    WorkerStream stream("comm");
    for (int i = 0; i < 100; ++i) stream.enqueue("count", [&] { ++count; });
  }
  CHECK(count == 100);
}

TEST_CASE("work is forgotten before later work runs") {
  WorkerStream stream("comm");
  auto captured = std::make_shared<int>(1);
  stream.enqueue("hold", [copy = captured] {});
  long owners = 0;
  stream.enqueue("count owners", [&] { owners = captured.use_count(); });
  stream.synchronize();
  CHECK(owners == 1);
}

TEST_CASE("an idle worker sleeps") {
  WorkerStream stream("comm");
  stream.synchronize();
  timespec before{}, after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(200ms);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double cpu_ms = static_cast<double>(after.tv_sec - before.tv_sec) * 1e3 +
                        static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-6;
  CHECK(cpu_ms < 50);  // measured: 0.1
}

TEST_CASE("kernels of a worker's stream run in its order") {
  Context context(make_cpu_backend({.threads = 2}));
  const Tensor t = Tensor::zeros(context, {1000});
  auto stream = context.make_stream("comm");
  auto kernels = context.make_kernels(*stream);
  bool gate = false;
  stream->enqueue("open", [&] {
    std::this_thread::sleep_for(5ms);
    gate = true;
  });
  kernels->fill(t, 3);
  kernels->add(t, t);
  bool seen = false;
  stream->enqueue("look", [&] { seen = gate && t.data<float>()[999] == 6; });
  context.compute_stream().wait(stream->record());
  CHECK(seen);
  kernels->add(t, View(nullptr, DType::i32, 5));  // refused when its turn comes
  CHECK_THROWS_AS(stream->synchronize(), Error);
}
