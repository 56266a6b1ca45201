// What the simulator tells the sanitizers, as functions that do nothing in a build without them.
//
// AddressSanitizer: which bytes may not be touched, and that a stack is changed for another. ThreadSanitizer: each CUDA
// thread is a context ("fiber" in its interface) of its own, and what orders two contexts is a token: what was done before
// release(token) happens before what follows acquire(token). Barriers, the start and the end of a block do that; nothing
// else. The simulator is compiled without ThreadSanitizer, so that its own memory is never in question; for the same
// reason it has no mutex and keeps off the heap while a kernel runs.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(TRENCADIS_SIM_TSAN)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif
#if defined(__SANITIZE_THREAD__)
#error "the simulator is compiled without -fsanitize=thread (third_party/cuda_twice.cmake)"
#endif

namespace trencadis::cudasim {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
inline void forbid(const void* begin, size_t bytes) { __asan_poison_memory_region(begin, bytes); }
inline void allow(const void* begin, size_t bytes) { __asan_unpoison_memory_region(begin, bytes); }
#else
inline constexpr bool kAddressSanitizer = false;
inline void forbid(const void*, size_t) {}
inline void allow(const void*, size_t) {}
#endif

#if defined(TRENCADIS_SIM_TSAN)
inline constexpr bool kThreadSanitizer = true;
inline void acquire(void* token) { __tsan_acquire(token); }
inline void release(void* token) { __tsan_release(token); }
inline void* running_context() { return __tsan_get_current_fiber(); }
// In its scope nothing is recorded: what the simulator does with the heap while a kernel or two host threads look on.
struct Unseen {
  Unseen() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unseen() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
};
#else
inline constexpr bool kThreadSanitizer = false;
inline void acquire(void*) {}
inline void release(void*) {}
inline void* running_context() { return nullptr; }
struct Unseen {
  Unseen() {}
  ~Unseen() {}
};
#endif

}  // namespace trencadis::cudasim
