// Making stacks, and the switch itself.
#include "runtime/cudasim/fiber.h"

#include <sys/mman.h>

#include "runtime/check.h"
#include "runtime/cudasim/sanitizers.h"

namespace trencadis::cudasim {

namespace {

constexpr size_t kPage = 4096;

// The fiber that was left last: on the new stack, arrived() learns where its stack lies.
[[maybe_unused]] Fiber* left = nullptr;

}  // namespace

#if defined(__x86_64__)
// switch_stacks(where to keep the old stack pointer, the new one). The compiler knows that a call may change all registers
// but six and the stack pointer: those are pushed on the old stack and popped from the new one, and `ret` goes on where the
// new one called this function. What it does not save (the floating-point modes) nobody here changes.
extern "C" void trencadis_switch_stacks(void** keep, void* stack_pointer);
asm(R"(
.text
.globl trencadis_switch_stacks
.type trencadis_switch_stacks, @function
trencadis_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size trencadis_switch_stacks, . - trencadis_switch_stacks
.section .note.GNU-stack, "", @progbits
.text
)");
#endif

Fiber::Fiber(size_t stack_bytes) : owns_stack_(true), stack_bytes_(stack_bytes) {
  void* memory = mmap(nullptr, stack_bytes + kPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  CHECK(memory != MAP_FAILED, "no memory for the stack of a CUDA thread ({} bytes)", stack_bytes);
  mprotect(memory, kPage, PROT_NONE);
  stack_ = static_cast<char*>(memory) + kPage;
#if defined(TRENCADIS_SIM_TSAN)
  tsan_context_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  if (!owns_stack_) return;
  allow(stack_, stack_bytes_);
  munmap(stack_ - kPage, stack_bytes_ + kPage);
#if defined(TRENCADIS_SIM_TSAN)
  __tsan_destroy_fiber(tsan_context_);
#endif
}

void Fiber::restart(Entry entry) {
  allow(stack_, stack_bytes_);  // AddressSanitizer forbade parts of the frames that are dropped
#if defined(__x86_64__)
  // What the switch pops: six registers, then the address where it goes on. A function expects to find its return address
  // on top, 8 bytes below a multiple of 16; entry never returns, and 0 there ends a debugger's walk.
  void** top = reinterpret_cast<void**>(stack_ + stack_bytes_);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  stack_pointer_ = top;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = stack_bytes_;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
#endif
}

void Fiber::forget([[maybe_unused]] void* token) {
#if defined(TRENCADIS_SIM_TSAN)
  void* here = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_context_, __tsan_switch_to_fiber_no_sync);
  release(token);
  __tsan_switch_to_fiber(here, __tsan_switch_to_fiber_no_sync);
  __tsan_destroy_fiber(tsan_context_);
  tsan_context_ = __tsan_create_fiber(0);
#endif
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  if (!from.owns_stack_) from.tsan_context_ = running_context();
  left = &from;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.asan_fake_stack_, to.stack_, to.stack_bytes_);
#endif
#if defined(TRENCADIS_SIM_TSAN)
  __tsan_switch_to_fiber(to.tsan_context_, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__x86_64__)
  trencadis_switch_stacks(&from.stack_pointer_, to.stack_pointer_);
#else
  swapcontext(&from.context_, &to.context_);
#endif
  // Here `from` runs again.
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from.asan_fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::arrived() {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
  if (!left->owns_stack_) {
    left->stack_ = static_cast<char*>(const_cast<void*>(bottom));
    left->stack_bytes_ = bytes;
  }
#endif
}

}  // namespace trencadis::cudasim
