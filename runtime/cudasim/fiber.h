// A fiber: a stack and the registers of code that was put aside. Switching from one to another takes fifteen
// instructions and no system call, so that a block of 1024 CUDA threads costs 1024 stacks and one thread of the system.
//
// The sanitizers are told of every switch: AddressSanitizer where the stack lies, ThreadSanitizer that another "thread" of
// its runs from here on, and that the switch itself orders nothing (else it would never see a race).
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace trencadis::cudasim {

class Fiber {
 public:
  // Never returns; leaves by switching away for good.
  using Entry = void (*)();

  // The code that runs already, on the stack it has.
  Fiber() = default;
  // A stack of its own, with a page below it that may not be touched.
  explicit Fiber(size_t stack_bytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next switch to it calls entry on an empty stack; what it was doing is forgotten.
  void restart(Entry entry);
  // ThreadSanitizer: what it did happens before what acquires `token` next; then it starts as one who did nothing.
  void forget(void* token);

  // Puts the running code aside as `from` and goes on with `to`.
  static void switch_to(Fiber& from, Fiber& to);
  // To be called first on a stack that was switched to for the first time.
  static void arrived();

 private:
  bool owns_stack_ = false;
  char* stack_ = nullptr;  // its lowest byte. Of code that ran already: set by arrived(), for AddressSanitizer
  size_t stack_bytes_ = 0;
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;  // of code put aside; its registers lie there
#else
  ucontext_t context_;
#endif
  void* asan_fake_stack_ = nullptr;
  void* tsan_context_ = nullptr;
};

}  // namespace trencadis::cudasim
