#include "runtime/thread_pool.h"

#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trencadis {

namespace {
// Kernels follow each other within microseconds, and waking a thread that sleeps costs tens of them; so a thread looks
// this often (about 30 us) before it sleeps. Not at all where threads outnumber cores: there it would hold up the rest.
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
  if (threads <= static_cast<int>(std::thread::hardware_concurrency())) spins_ = kSpins;
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { worker(); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (auto& thread : workers_) thread.join();
}

bool ThreadPool::take_chunk() {
  // The test spares a write to a shared cache line; the decrement decides. Whoever decrements a positive count owns a
  // chunk of the loop that runs now, whichever loop it came for.
  if (unclaimed_.load() <= 0) return false;
  const int64_t left = unclaimed_.fetch_sub(1);
  if (left <= 0) return false;
  try {
    (*chunk_)(chunks_ - left);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
  // Both this pair and its twins below are "write one, then read the other" on two threads. Sequential consistency, the
  // default of std::atomic, is what makes at least one of them see the other's write.
  if (unfinished_.fetch_sub(1) == 1 && waiting_.load()) {
    { const std::lock_guard lock(mutex_); }  // the caller is now before its check or inside the wait, not in between
    done_.notify_one();
  }
  return true;
}

void ThreadPool::worker() {
  const auto idle = [this] { return unclaimed_.load() <= 0 && !stop_.load(); };
  while (!stop_.load()) {
    while (take_chunk()) {
    }
    for (int spin = 0; spin < spins_ && idle(); ++spin) pause();
    if (!idle()) continue;
    std::unique_lock lock(mutex_);
    ++sleepers_;
    work_.wait(lock, [&] { return !idle(); });
    --sleepers_;
  }
}

void ThreadPool::run(int64_t chunks, const std::function<void(int64_t)>& chunk) {
  if (workers_.empty() || chunks <= 1) {
    for (int64_t i = 0; i < chunks; ++i) chunk(i);
    return;
  }
  chunk_ = &chunk;
  chunks_ = chunks;
  unfinished_ = chunks;
  unclaimed_ = chunks;  // from here on workers may claim
  if (sleepers_.load() > 0) {
    { const std::lock_guard lock(mutex_); }
    work_.notify_all();
  }
  while (take_chunk()) {
  }
  // The other threads are in their last chunks.
  for (int spin = 0; spin < spins_ && unfinished_.load() > 0; ++spin) pause();
  if (unfinished_.load() > 0) {
    std::unique_lock lock(mutex_);
    waiting_ = true;
    done_.wait(lock, [&] { return unfinished_.load() == 0; });
    waiting_ = false;
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace trencadis
