// The executor: what each schedule runs when, rendezvous, host functions, copies and memory. What must end the process
// (deadlocks, host access to device memory) is among the planted bugs, planted_streams/main.cpp.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sim_test.h"

using namespace trencadis;
using namespace trencadis::cudasim;
using namespace trencadis::test;

namespace {

// What ran, in order, as one letter each. Of atomics, because streams that nothing orders write into it.
class Log {
 public:
  void operator+=(char c) { letters_.at(size_++) = c; }
  std::string text() const { return {letters_.begin(), letters_.begin() + size_}; }

 private:
  std::array<std::atomic<char>, 64> letters_{};
  std::atomic<int> size_{0};
};

struct Streams {
  Streams() {
    ok(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    ok(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  ~Streams() {
    cudaDeviceSynchronize();
    cudaEventDestroy(event);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
  }
  // A piece of work that writes its name into the log.
  void put(cudaStream_t stream, char name) {
    enqueue(stream, std::string(1, name), [this, name] { log += name; });
  }
  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t event = nullptr;
  Log log;
};

// Five pieces of work: 1 2 on the older stream a, x y on b, y after 1 by an event, and 3 on a after y.
std::string run_under(const char* name) {
  const WithSchedule with(name);
  Streams s;
  s.put(s.a, '1');
  ok(cudaEventRecord(s.event, s.a));
  s.put(s.a, '2');
  s.put(s.b, 'x');
  ok(cudaStreamWaitEvent(s.b, s.event, 0));
  s.put(s.b, 'y');
  ok(cudaEventRecord(s.event, s.b));
  ok(cudaStreamWaitEvent(s.a, s.event, 0));
  s.put(s.a, '3');
  s.put(s.b, 'z');  // nobody waits for it
  const std::string before = s.log.text();
  ok(cudaStreamSynchronize(s.a));
  return before + "|" + s.log.text().substr(before.size());
}

}  // namespace

TEST_CASE("eager runs at once, lazy and late only what is waited for, newest or oldest stream first") {
  CHECK(run_under("eager") == "12xy3z|");
  CHECK(run_under("lazy") == "|x1y23");
  CHECK(run_under("late") == "|12xy3");
}

TEST_CASE("a seed is repeatable, keeps the order that events ask for, and seeds differ") {
  std::vector<std::string> logs;
  for (int seed = 0; seed < 16; ++seed) {
    const std::string name = "seed:" + std::to_string(seed);
    std::string log = run_under(name.c_str());
    CHECK(log == run_under(name.c_str()));
    log.erase(log.find('|'), 1);
    for (const char* pair : {"12", "xy", "1y", "y3", "23"}) CHECK(log.find(pair[0]) < log.find(pair[1]));
    if (std::find(logs.begin(), logs.end(), log) == logs.end()) logs.push_back(log);
  }
  CHECK(logs.size() >= 3);
}

TEST_CASE("names of schedules") {
  for (const char* name : {"eager", "lazy", "late", "seed:0", "seed:18446744073709551615"})
    CHECK(Schedule::parse(name).name() == name);
  for (const char* name : {"", "Eager", "seed", "seed:", "seed:x", "seed:1x", "seed:-1"})
    CHECK_THROWS_AS(Schedule::parse(name), Error);
}

TEST_CASE("an event is what was enqueued before it was recorded; recording again does not move those who wait") {
  const WithSchedule with("lazy");
  Streams s;
  ok(cudaStreamWaitEvent(s.b, s.event, 0));  // never recorded: orders nothing
  CHECK(cudaEventQuery(s.event) == cudaSuccess);
  s.put(s.a, '1');
  ok(cudaEventRecord(s.event, s.a));
  ok(cudaStreamWaitEvent(s.b, s.event, 0));
  s.put(s.a, '2');
  ok(cudaEventRecord(s.event, s.a));
  ok(cudaStreamSynchronize(s.b));
  CHECK(s.log.text() == "1");
  ok(cudaEventSynchronize(s.event));
  CHECK(s.log.text() == "12");
}

TEST_CASE("a host that polls gets there, but later than it asks") {
  const WithSchedule with("lazy");
  Streams s;
  s.put(s.a, '1');
  ok(cudaEventRecord(s.event, s.a));
  s.put(s.a, '2');
  CHECK(cudaEventQuery(s.event) == cudaErrorNotReady);
  CHECK(cudaEventQuery(s.event) == cudaSuccess);
  CHECK(s.log.text() == "1");
  while (cudaStreamQuery(s.a) == cudaErrorNotReady) {
  }
  CHECK(s.log.text() == "12");
}

TEST_CASE("a destroyed stream and a destroyed event still do what was enqueued") {
  const WithSchedule with("lazy");
  Streams s;
  cudaStream_t gone = nullptr;
  cudaEvent_t event = nullptr;
  ok(cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking));
  ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  s.put(gone, '1');
  ok(cudaEventRecord(event, gone));
  ok(cudaStreamWaitEvent(s.a, event, 0));
  ok(cudaEventDestroy(event));
  ok(cudaStreamDestroy(gone));
  s.put(s.a, '2');
  ok(cudaStreamSynchronize(s.a));
  CHECK(s.log.text() == "12");
}

TEST_CASE("the legacy stream is ordered with ordinary streams, not with non-blocking ones") {
  const WithSchedule with("lazy");
  Streams s;
  cudaStream_t ordinary = nullptr;
  ok(cudaStreamCreate(&ordinary));
  s.put(s.a, 'n');
  s.put(ordinary, '1');
  s.put(nullptr, '2');
  s.put(ordinary, '3');
  ok(cudaStreamSynchronize(ordinary));
  CHECK(s.log.text() == "123");
  ok(cudaDeviceSynchronize());
  CHECK(s.log.text() == "123n");
  ok(cudaStreamDestroy(ordinary));
}

TEST_CASE("a host function runs in stream order") {
  const WithSchedule with("lazy");
  Streams s;
  s.put(s.a, '1');
  ok(cudaLaunchHostFunc(
      s.a, [](void* streams) { static_cast<Streams*>(streams)->log += 'h'; }, &s));
  s.put(s.a, '2');
  ok(cudaStreamSynchronize(s.a));
  CHECK(s.log.text() == "1h2");
}

TEST_CASE("a rendezvous runs when all parties are there, after what is before it and before what is after it") {
  for (const char* name : {"eager", "lazy", "late", "seed:1", "seed:2", "seed:3"}) {
    CAPTURE(name);
    const WithSchedule with(name);
    Streams s;
    auto rendezvous = std::make_shared<Rendezvous>("rendezvous", 2, [&s](Rendezvous& m) {
      for (int party : {1, 0}) m.as_party(party, [&] { s.log += 'm'; });
    });
    s.put(s.a, '1');
    enqueue(s.a, rendezvous, 0);
    s.put(s.a, '2');
    s.put(s.b, 'x');
    enqueue(s.b, rendezvous, 1);
    ok(cudaStreamSynchronize(s.a));
    const std::string log = s.log.text();
    CHECK(log.find('1') < log.find("mm"));
    CHECK(log.find('x') < log.find("mm"));
    CHECK(log.find("mm") < log.find('2'));
    CHECK(log.size() == 5);
  }
}

TEST_CASE("ranks as threads meet many times; a thread that waits runs what others need") {
  for (const char* name : {"eager", "lazy", "late", "seed:7"}) {
    CAPTURE(name);
    const WithSchedule with(name);
    constexpr int kRanks = 3, kRounds = 50;
    std::vector<std::shared_ptr<Rendezvous>> rendezvous;
    std::array<int, kRanks> value{};  // each rank's, changed by its own stream
    for (int round = 0; round < kRounds; ++round)
      rendezvous.push_back(std::make_shared<Rendezvous>("sum", kRanks, [&value](Rendezvous& m) {
        int sum = 0;
        for (int r = 0; r < kRanks; ++r) m.as_party(r, [&] { sum += value[static_cast<size_t>(r)]; });
        for (int r = 0; r < kRanks; ++r) m.as_party(r, [&] { value[static_cast<size_t>(r)] = sum % 1000; });
      }));
    HostThreads threads(kRanks);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank)
      ranks.emplace_back([&, rank] {
        const HostThreads::Member member(threads);
        ok(cudaSetDevice(rank));
        cudaStream_t stream = nullptr;
        ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (int round = 0; round < kRounds; ++round) {
          enqueue(stream, "add", [&value, rank] { value[static_cast<size_t>(rank)] += rank; });
          enqueue(stream, rendezvous[static_cast<size_t>(round)], rank);
          if (round % 8 == rank) ok(cudaStreamSynchronize(stream));
        }
        ok(cudaStreamSynchronize(stream));
        ok(cudaStreamDestroy(stream));
      });
    for (std::thread& rank : ranks) rank.join();
    int expected = 0;  // every round: the sum of (expected + r), modulo 1000
    for (int round = 0; round < kRounds; ++round) expected = (kRanks * expected + 0 + 1 + 2) % 1000;
    for (int v : value) CHECK(v == expected);
  }
}
