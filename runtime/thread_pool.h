// ThreadPool: runs the chunks of one loop on a fixed set of threads.
//
// The caller cuts the work into chunks by shape alone; which thread runs a chunk is not fixed. A kernel is therefore
// deterministic exactly when its chunks write different memory or their partial results are added in chunk order.
//
// Invariants: a thread owns a chunk from the moment it has decremented unclaimed_ to the moment it decrements
// unfinished_, and reads the loop (chunk_, chunks_) only in between; run() changes the loop only while
// unfinished_ is 0. So a worker that wakes late finds nothing to claim, or a chunk of the loop that runs by then;
// it is never waited for.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace trencadis {

class ThreadPool {
 public:
  // `threads` in all, the calling one included; 1 starts none.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls chunk(i) for every i in [0, chunks), and returns when all are done. The first exception is thrown again, once
  // no chunk runs any more. One caller at a time; must not be called from inside a chunk.
  void run(int64_t chunks, const std::function<void(int64_t)>& chunk);

 private:
  void worker();
  bool take_chunk();  // false: nothing left to claim

  std::vector<std::thread> workers_;
  int spins_ = 0;  // how often a thread looks again before it sleeps

  // The loop that runs.
  const std::function<void(int64_t)>* chunk_ = nullptr;
  int64_t chunks_ = 0;
  std::atomic<int64_t> unclaimed_{0};  // at or below 0: none
  std::atomic<int64_t> unfinished_{0};

  std::mutex mutex_;                  // guards error_, and orders going to sleep with waking
  std::condition_variable work_;      // workers: there is something to claim, or stop_
  std::condition_variable done_;      // the caller: unfinished_ is 0
  std::atomic<int> sleepers_{0};      // workers in work_, or about to be
  std::atomic<bool> waiting_{false};  // the caller is in done_, or about to be
  std::atomic<bool> stop_{false};
  std::exception_ptr error_;
};

// Chunks of at least `grain` items, at most 64 of them, by count alone: {number of chunks, items per chunk}.
struct Chunks {
  int64_t count, size;
  Chunks(int64_t items, int64_t grain) {
    const int64_t wanted = std::max<int64_t>(1, std::min<int64_t>(64, items / std::max<int64_t>(1, grain)));
    size = (items + wanted - 1) / wanted;
    count = size ? (items + size - 1) / size : 0;
  }
  int64_t begin(int64_t chunk) const { return chunk * size; }
  int64_t end(int64_t chunk, int64_t items) const { return std::min(items, (chunk + 1) * size); }
};

}  // namespace trencadis
