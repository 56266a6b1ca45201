// Ranks as threads: on_ranks() for test_dist, and what only this backend promises.
#include <atomic>
#include <thread>

#include "dist/local/local_communicator.h"
#include "dist/thread/thread_communicator.h"
#include "ranks.h"

namespace trencadis::test {

namespace {
// Runs work(rank) on one thread each; an exception fails the test with its text.
void on_threads(int size, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(rank);
      } catch (const std::exception& error) {
        FAIL_CHECK("rank " << rank << " of " << size << ": " << error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}
}  // namespace

bool accumulates_the_sum() { return false; }

void on_ranks(const CommOptions& options, const std::function<void(Communicator&)>& body, AbortFlag* abort) {
  for (int size = 1; size <= 4; ++size) {
    if (abort) *abort = false;
    const auto ranks = make_thread_communicators(size, options, abort);
    on_threads(size, [&](int rank) {
      CAPTURE(size);
      CAPTURE(rank);
      body(*ranks[static_cast<size_t>(rank)]);
    });
  }
}

TEST_CASE("thread: a rank that leaves makes those who wait for it fail at once") {
  for (int size = 2; size <= 4; ++size) {
    auto ranks = make_thread_communicators(size);
    on_threads(size, [&](int rank) {
      auto comm = std::move(ranks[static_cast<size_t>(rank)]);
      if (rank == size - 1) return;  // destroys it
      WorkerStream stream("comm");
      float x = 1;
      comm->all_reduce(View(&x, 1), ReduceOp::sum, stream, {"u"});
      const Stopwatch watch;
      const std::string text = error_of([&] { stream.synchronize(); });
      CAPTURE(text);
      CHECK(watch.seconds() < 1);
      CHECK(contains(text, "destroyed its communicator"));
    });
  }
}

TEST_CASE("thread: run_on_threads runs every rank, and throws what the first to fail threw, at once") {
  std::atomic<int> sum = 0;
  run_on_threads(3, [&](Communicator& world) { sum += world.size() * 10 + world.rank(); });
  CHECK(sum == 93);
  const Stopwatch watch;
  const std::string text = error_of([] {
    run_on_threads(3, [](Communicator& world) {
      if (world.rank() == 1) throw Error("rank 1 has no data");
      world.barrier({"the others wait"});
    });
  });
  CHECK(text == "rank 1 has no data");
  CHECK(watch.seconds() < 1);
}

TEST_CASE("local: copies, sums onto, and counts nothing") {
  const auto comm = make_local_communicator();
  WorkerStream stream("comm");
  float in[] = {1, 2, 3}, shard[] = {10, 10, 10}, out[3] = {};
  comm->reduce_scatter(View(in, 3), View(shard, 3), true, stream, {"u", Traffic::training});
  comm->all_gather(View(shard, 3), View(out, 3), stream, {"u", Traffic::training});
  comm->all_reduce(View(out, 3), ReduceOp::sum, stream, {"u", Traffic::training});
  comm->reduce_scatter(View(out, 3), View(out, 3), false, stream, {"u", Traffic::training});
  comm->broadcast(View(out, 3), 0, stream, {"u", Traffic::training});
  comm->barrier({"end"});
  stream.synchronize();
  for (int i = 0; i < 3; ++i) CHECK(out[i] == 11.0f + static_cast<float>(i));
  CHECK(comm->rank() == 0);
  CHECK(comm->split(3, 1)->size() == 1);
  for (const auto& kinds : comm->counters().count)
    for (const auto& count : kinds) CHECK((count.calls == 0 && count.elements_sent == 0 && count.bytes_sent == 0));
}

TEST_CASE("pieces and messages count in 64 bits") {
  const int64_t big = (int64_t{1} << 31) + 3;
  std::vector<std::pair<int64_t, int64_t>> messages;
  for_each_message(big, int64_t{1} << 29, [&](int64_t first, int64_t n) { messages.emplace_back(first, n); });
  REQUIRE(messages.size() == 5);
  CHECK(messages[4] == std::pair<int64_t, int64_t>(int64_t{1} << 31, 3));
  int64_t next = 0;
  for (const auto& [first, n] : messages) {
    CHECK(first == next);
    CHECK(n <= int64_t{1} << 29);
    next = first + n;
  }
  CHECK(next == big);

  for (const int64_t total : {int64_t{0}, int64_t{1}, int64_t{9}, big, 4 * big + 1}) {
    for (const int ranks : {1, 2, 3, 7}) {
      const Pieces pieces = Pieces::of_all_reduce(total, ranks);
      int64_t sum = 0;
      for (int r = 0; r < ranks; ++r) {
        CHECK(pieces.begin(r) == sum);
        CHECK((pieces.begin(r) % 4 == 0 || pieces.count(r) == 0));
        CHECK(pieces.count(r) >= 0);
        sum += pieces.count(r);
      }
      CHECK(sum == total);
    }
  }
}

TEST_CASE("the names of ranks read well") {
  const int one[] = {3}, two[] = {0, 2}, three[] = {0, 1, 3};
  CHECK(name_ranks(one) == "rank 3");
  CHECK(name_ranks(two) == "ranks 0 and 2");
  CHECK(name_ranks(three) == "ranks 0, 1 and 3");
}

}  // namespace trencadis::test
