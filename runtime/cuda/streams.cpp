#include "runtime/cuda/streams.h"

#include <functional>
#include <typeinfo>
#include <utility>

#include "runtime/check.h"
#include "runtime/cuda/handles.h"

namespace trencadis {

EventPool::~EventPool() {
  for (cudaEvent_t event : free_) cudaEventDestroy(event);
}

cudaEvent_t EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const cudaEvent_t event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

void EventPool::give(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

void HostErrors::set(int64_t work, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (error_) return;
  failed_ = work;
  error_ = std::move(error);
}

bool HostErrors::failed_by(int64_t work) const {
  const std::lock_guard lock(mutex_);
  return failed_ <= work;
}

void HostErrors::rethrow_by(int64_t work) const {
  const std::lock_guard lock(mutex_);
  if (failed_ <= work) std::rethrow_exception(error_);
}

namespace {

class CudaEventState final : public Event::State {
 public:
  CudaEventState(std::shared_ptr<EventPool> pool, std::shared_ptr<HostErrors> errors, int64_t works,
                 std::string after_what)
      : pool_(std::move(pool)),
        event_(pool_->take()),
        errors_(std::move(errors)),
        works_(works),
        after_what_(std::move(after_what)) {}
  ~CudaEventState() override { pool_->give(event_); }

  bool happened() const override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    CUDA_CHECK(status);
    return true;
  }
  void wait_on_host() override {
    CUDA_CHECK(cudaEventSynchronize(event_));
    errors_->rethrow_by(works_);
  }
  std::string after_what() const override { return after_what_; }

  cudaEvent_t event() const { return event_; }
  int64_t works() const { return works_; }
  const std::shared_ptr<HostErrors>& errors() const { return errors_; }

 private:
  const std::shared_ptr<EventPool> pool_;
  const cudaEvent_t event_;
  const std::shared_ptr<HostErrors> errors_;
  const int64_t works_;  // pieces of host code of the stream before the event
  const std::string after_what_;
};

// One piece of host code on its way through CUDA, which takes a pointer.
struct HostCall {
  std::shared_ptr<HostErrors> errors;
  int64_t number;
  std::string stream, what;
  std::function<void()> work;

  static void run(void* pointer) {
    const std::unique_ptr<HostCall> call(static_cast<HostCall*>(pointer));
    if (call->errors->failed_by(call->number)) return;
    try {
      call->work();
    } catch (const std::exception& error) {
      // A class derived from Error stays what it is: main reads the exit code from it.
      const bool is_exact = dynamic_cast<const Error*>(&error) && typeid(error) != typeid(Error);
      call->errors->set(call->number,
                        is_exact ? std::current_exception()
                                 : std::make_exception_ptr(Error(fmt::format("{} (while stream {} did: {})",
                                                                             error.what(), call->stream, call->what))));
    } catch (...) {
      call->errors->set(call->number, std::current_exception());
    }
  }
};

}  // namespace

CudaStream::CudaStream(std::string name, std::shared_ptr<EventPool> events)
    : name_(std::move(name)), events_(std::move(events)) {
  CUDA_CHECK(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking));
}

CudaStream::~CudaStream() {
  cudaStreamSynchronize(handle_);
  cudaStreamDestroy(handle_);
}

CudaStream& CudaStream::of(Stream& stream) {
  auto* cuda = dynamic_cast<CudaStream*>(&stream);
  CHECK(cuda, "stream {} is no stream of a GPU", stream.name());
  return *cuda;
}

void CudaStream::enqueue(std::string what, std::function<void()> work) {
  last_what_ = what;
  auto call = std::make_unique<HostCall>(HostCall{errors_, works_ + 1, name_, std::move(what), std::move(work)});
  CUDA_CHECK(cudaLaunchHostFunc(handle_, &HostCall::run, call.get()));
  static_cast<void>(call.release());  // run() owns it
  ++works_;
}

Event CudaStream::record() {
  auto state = std::make_shared<CudaEventState>(events_, errors_, works_, last_what_);
  CUDA_CHECK(cudaEventRecord(state->event(), handle_));
  return Event(state);
}

void CudaStream::wait(const Event& event) {
  if (!event.state()) return;
  const auto* state = dynamic_cast<const CudaEventState*>(event.state());
  if (!state) return event.wait_on_host();
  CUDA_CHECK(cudaStreamWaitEvent(handle_, state->event(), 0));
  if (state->works() == 0 || state->errors() == errors_) return;
  enqueue("take over the errors of another stream",
          [errors = state->errors(), works = state->works()] { errors->rethrow_by(works); });
}

void CudaStream::synchronize() {
  CUDA_CHECK(cudaStreamSynchronize(handle_));
  errors_->rethrow_by(works_);
}

}  // namespace trencadis
