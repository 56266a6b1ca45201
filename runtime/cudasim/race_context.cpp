#include "runtime/cudasim/race_context.h"

#if defined(TRENCADIS_SIM_TSAN)
extern "C" {
void __tsan_read_range(void* data, unsigned long bytes);
void __tsan_write_range(void* data, unsigned long bytes);
}
#endif

namespace trencadis::cudasim {

#if defined(TRENCADIS_SIM_TSAN)

namespace {
constexpr size_t kStackBytes = size_t{1} << 20;
RaceContext* entered = nullptr;  // for the first words of loop()
}  // namespace

void about_to_read(const void* data, size_t bytes) { __tsan_read_range(const_cast<void*>(data), bytes); }
void about_to_write(void* data, size_t bytes) { __tsan_write_range(data, bytes); }

void RaceContext::loop() {
  RaceContext& self = *entered;
  for (;;) {
    Fiber::arrived();
    (*self.work_)();
    Fiber::switch_to(*self.fiber_, self.caller_);
  }
}

void RaceContext::run(const std::function<void()>& work) {
  if (!fiber_) {
    fiber_ = std::make_unique<Fiber>(kStackBytes);
    fiber_->restart(&RaceContext::loop);
  }
  work_ = &work;
  entered = this;
  Fiber::switch_to(caller_, *fiber_);
}

#endif

}  // namespace trencadis::cudasim
