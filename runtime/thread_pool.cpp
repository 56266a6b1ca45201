#include "runtime/thread_pool.h"

#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trencadis {

namespace {
// A worker looks for the next loop this many times before it sleeps: kernels follow each other within microseconds.
constexpr int kSpins = 2000;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}
}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { worker(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (auto& thread : workers_) thread.join();
}

void ThreadPool::take_chunks() {
  for (int64_t i = next_.fetch_add(1); i < chunks_; i = next_.fetch_add(1)) {
    try {
      (*chunk_)(i);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
}

void ThreadPool::worker() {
  uint64_t seen = 0;
  for (;;) {
    for (int spin = 0; spin < kSpins && generation_.load() == seen; ++spin) pause();
    if (generation_.load() == seen) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load() != seen; });
    }
    seen = generation_.load();
    if (stop_) return;
    take_chunks();
    active_.fetch_sub(1);
  }
}

void ThreadPool::run(int64_t chunks, const std::function<void(int64_t)>& chunk) {
  if (workers_.empty() || chunks <= 1) {
    for (int64_t i = 0; i < chunks; ++i) chunk(i);
    return;
  }
  chunk_ = &chunk;
  chunks_ = chunks;
  next_ = 0;
  active_ = static_cast<int>(workers_.size());
  {
    const std::lock_guard lock(mutex_);
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  take_chunks();
  // The other threads are in their last chunks: yielding lets them finish where there are fewer cores than threads.
  for (int spin = 0; active_.load() != 0; ++spin) spin < kSpins ? pause() : std::this_thread::yield();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace trencadis
