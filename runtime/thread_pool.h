// ThreadPool: runs the chunks of one loop on a fixed set of threads.
//
// The caller cuts the work into chunks by shape alone; which thread runs a chunk is not fixed. A kernel is therefore
// deterministic exactly when its chunks write different memory or their partial results are added in chunk order.
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

  // Calls chunk(i) for every i in [0, chunks), and returns when all are done. The first exception is thrown again.
  // One caller at a time; must not be called from inside a chunk.
  void run(int64_t chunks, const std::function<void(int64_t)>& chunk);

 private:
  void worker();
  void take_chunks();

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<uint64_t> generation_{0};  // counts loops; a worker joins when it changes
  std::atomic<int> active_{0};           // workers still inside the current loop
  std::atomic<int64_t> next_{0};
  std::atomic<bool> stop_{false};
  int64_t chunks_ = 0;
  const std::function<void(int64_t)>* chunk_ = nullptr;
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
