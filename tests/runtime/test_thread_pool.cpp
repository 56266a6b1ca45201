// ThreadPool and Chunks: every chunk once, errors, loops that follow each other closely, and no waiting for sleepers.
#include <time.h>

#include <chrono>

#include "kernel_test.h"
#include "runtime/thread_pool.h"

using namespace trencadis;
using namespace trencadis::test;
using namespace std::chrono_literals;

TEST_CASE("every chunk runs exactly once, over many short loops of different lengths") {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    CHECK(pool.threads() == threads);
    for (int64_t loop = 0; loop < 2000; ++loop) {
      const int64_t chunks = loop % 50 == 49 ? 20000 : loop % 7;  // the long ones make threads collide
      std::vector<int> count(static_cast<size_t>(chunks), 0);     // not atomic: a chunk belongs to one thread
      pool.run(chunks, [&](int64_t i) { ++count[static_cast<size_t>(i)]; });
      REQUIRE(std::all_of(count.begin(), count.end(), [](int c) { return c == 1; }));
    }
  }
}

TEST_CASE("what one loop wrote, the next loop reads, on whatever thread") {
  ThreadPool pool(3);
  std::vector<int64_t> even(64, 0), odd(64, 0);
  for (int64_t loop = 0; loop < 2000; ++loop) {
    pool.run(64, [&](int64_t i) { odd[static_cast<size_t>(i)] = even[static_cast<size_t>(63 - i)] + 1; });
    pool.run(64, [&](int64_t i) { even[static_cast<size_t>(i)] = odd[static_cast<size_t>(63 - i)] + 1; });
  }
  CHECK(std::all_of(even.begin(), even.end(), [](int64_t v) { return v == 4000; }));
}

TEST_CASE("the first exception is thrown again, and the pool goes on") {
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (int i = 0; i < 100; ++i) {
      expect_error(
          [&] {
            pool.run(10, [](int64_t c) {
              if (c == 4) throw Error("chunk 4");
            });
          },
          "chunk 4");
      std::atomic<int> count{0};
      pool.run(10, [&](int64_t) { ++count; });
      REQUIRE(count == 10);
    }
  }
}

TEST_CASE("workers sleep between loops, and wake") {
  ThreadPool pool(3);
  std::atomic<int> count{0}, by_workers{0};
  const auto caller = std::this_thread::get_id();
  for (int i = 0; i < 10; ++i) {
    timespec before{}, after{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    std::this_thread::sleep_for(20ms);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const double cpu_ms = static_cast<double>(after.tv_sec - before.tv_sec) * 1e3 +
                          static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-6;
    CHECK(cpu_ms < 10);
    // Long enough that the sleepers take part.
    pool.run(6, [&](int64_t) {
      std::this_thread::sleep_for(1ms);
      ++count;
      if (std::this_thread::get_id() != caller) ++by_workers;
    });
  }
  CHECK(count == 60);
  CHECK(by_workers >= 10);  // 40 on an idle machine
}

TEST_CASE("long chunks on other threads are waited for") {
  ThreadPool pool(2);
  std::atomic<int> done{0};
  pool.run(2, [&](int64_t i) {
    std::this_thread::sleep_for(i == 0 ? 1ms : 30ms);
    ++done;
  });
  CHECK(done == 2);
}

TEST_CASE("chunks cover the items, by count alone") {
  for (int64_t items : {0, 1, 2, 63, 64, 65, 1000, 4097, 1000003})
    for (int64_t grain : {0, 1, 16, 1000}) {
      const Chunks chunks(items, grain);
      CHECK(chunks.count <= 64);
      int64_t next = 0;
      for (int64_t c = 0; c < chunks.count; ++c) {
        REQUIRE(chunks.begin(c) == next);
        REQUIRE(chunks.end(c, items) > next);
        next = chunks.end(c, items);
      }
      CHECK(next == items);
    }
}
