// What ThreadSanitizer is told about the device: every stream is a thread of its own, and only stream order, events and
// synchronisation order two streams. A missing wait is then a reported race, whatever the order in which things ran.
//
// How: in its build (TRENCADIS_SIM_TSAN) the work of a stream runs on a fiber of the stream, which is entered without an
// edge of order; edges are made by SyncPoints alone. The fiber has a stack of its own, so that the local variables of two
// streams never share an address. The executor is compiled without -fsanitize=thread, so that its own bookkeeping is not
// seen. In other builds all of this is empty, and work runs on the stack of the host thread.
#pragma once

#include <cstddef>

#if defined(TRENCADIS_SIM_TSAN)
#include <functional>
#include <memory>

#include "runtime/cudasim/fiber.h"
#include "runtime/cudasim/sanitizers.h"
#endif

namespace trencadis::cudasim {

// What a release() publishes, a later acquire() sees. Must stay where it is: its address is its name.
class SyncPoint {
 public:
  SyncPoint() = default;
  SyncPoint(const SyncPoint&) = delete;
  SyncPoint& operator=(const SyncPoint&) = delete;
#if defined(TRENCADIS_SIM_TSAN)
  void release() { __tsan_release(this); }
  void acquire() { __tsan_acquire(this); }
#else
  void release() {}
  void acquire() {}
#endif
 private:
  [[maybe_unused]] char address_ = 0;
};

// What the simulator itself is about to do to device memory, where no call of memcpy says so.
#if defined(TRENCADIS_SIM_TSAN)
void about_to_read(const void* data, size_t bytes);
void about_to_write(void* data, size_t bytes);
#else
inline void about_to_read(const void*, size_t) {}
inline void about_to_write(void*, size_t) {}
#endif

// The thread that a stream is to ThreadSanitizer. Used under the executor's lock.
class RaceContext {
 public:
  // Does work as the stream. It must not throw.
#if defined(TRENCADIS_SIM_TSAN)
  void run(const std::function<void()>& work);
#else
  template <typename Work>
  void run(const Work& work) {
    work();
  }
#endif

#if defined(TRENCADIS_SIM_TSAN)
 private:
  static void loop();
  std::unique_ptr<Fiber> fiber_;  // made at the first run
  Fiber caller_;
  const std::function<void()>* work_ = nullptr;
#endif
};

}  // namespace trencadis::cudasim
