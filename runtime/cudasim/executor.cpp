#include "runtime/cudasim/executor.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "runtime/check.h"
#include "runtime/cudasim/device_memory.h"
#include "runtime/cudasim/executor_state.h"

namespace trencadis::cudasim {

namespace {
thread_local const std::string* running = nullptr;  // what this thread does for the device at the moment
}  // namespace

void fail(const std::string& message) {
  std::fprintf(stderr, "cudasim: %s\n", message.c_str());
  std::fflush(stderr);
  _exit(97);
}

Schedule Schedule::parse(const std::string& text) {
  if (text == "eager") return {Policy::eager};
  if (text == "lazy") return {Policy::lazy};
  if (text == "late") return {Policy::late};
  const bool seeded = text.rfind("seed:", 0) == 0 && text.size() > 5 && text.size() <= 25 &&
                      text.find_first_not_of("0123456789", 5) == std::string::npos;
  CHECK(seeded, "the schedule '{}' is none of eager, lazy, late, seed:N (TRENCADIS_SIM_SCHEDULE)", text);
  return {Policy::seeded, std::strtoull(text.c_str() + 5, nullptr, 10)};
}

std::string Schedule::name() const {
  switch (policy) {
    case Policy::eager:
      return "eager";
    case Policy::lazy:
      return "lazy";
    case Policy::late:
      return "late";
    case Policy::seeded:
      break;
  }
  return fmt::format("seed:{}", seed);
}

Executor& Executor::instance() {
  static Executor& executor = *new Executor;  // never destroyed: threads that outlive main may still call
  return executor;
}

Executor::Executor() {
  const char* name = std::getenv("TRENCADIS_SIM_SCHEDULE");
  try {
    if (name && *name) schedule = Schedule::parse(name);
  } catch (const Error& error) {
    fail(error.what());
  }
  draws = schedule.seed;
  const char* patience = std::getenv("TRENCADIS_SIM_PATIENCE");
  patience_ = std::chrono::seconds(patience && std::atoi(patience) > 0 ? std::atoi(patience) : 60);
}

Executor::Call::Call(const char* name) {
  if (running) fail(fmt::format("{} is called from inside {}: work on the device must not call CUDA", name, *running));
  lock_ = std::unique_lock(Executor::instance().mutex_);
}

// SplitMix64: any seed gives a good sequence.
uint64_t Executor::draw(uint64_t bound) {
  uint64_t z = draws += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return (z ^ (z >> 31)) % bound;
}

// ---------------------------------------------------------------------------------------------------- streams

CUstream_st* Executor::make_stream(int device, bool waits_for_legacy) {
  auto stream = std::make_unique<CUstream_st>();
  stream->number = created_++;
  stream->device = device;
  stream->waits_for_legacy = waits_for_legacy;
  streams_.push_back(stream.get());
  return stream.release();  // streams_ owns it until destroy_stream()
}

void Executor::destroy_stream(CUstream_st* stream) {
  stream->destroyed = true;
  if (!stream->queue.empty()) return;  // clean_up() comes back
  std::erase(streams_, stream);
  delete stream;
}

CUstream_st* Executor::resolve(cudaStream_t stream, int device) {
  if (stream == cudaStreamPerThread) fail("cudaStreamPerThread is not simulated; create a stream");
  if (stream && stream != cudaStreamLegacy) return stream;
  if (legacy_.size() <= static_cast<size_t>(device)) legacy_.resize(static_cast<size_t>(device) + 1);
  CUstream_st*& legacy = legacy_[static_cast<size_t>(device)];
  if (!legacy) {
    legacy = make_stream(device, false);
    legacy->is_legacy = true;
  }
  return legacy;
}

void Executor::append(CUstream_st* stream, std::unique_ptr<Operation> operation) {
  // The legacy stream is ordered with all streams of its device that do not opt out of it.
  if (stream->is_legacy) {
    for (CUstream_st* other : streams_)
      if (other->device == stream->device && other->waits_for_legacy && other->last)
        operation->after.push_back(other->last);
  } else if (stream->waits_for_legacy && static_cast<size_t>(stream->device) < legacy_.size()) {
    const CUstream_st* legacy = legacy_[static_cast<size_t>(stream->device)];
    if (legacy && legacy->last) operation->after.push_back(legacy->last);
  }
  auto mark = std::make_shared<Mark>();
  mark->stream = stream;
  mark->position = ++stream->enqueued;
  stream->last = operation->mark = mark;
  operation->enqueued.release();
  if (Rendezvous* rendezvous = operation->rendezvous.get()) {
    rendezvous->marks_[static_cast<size_t>(operation->party)] = mark;
    ++rendezvous->arrived_;
  }
  const bool already_needed = operation->rendezvous && operation->rendezvous->needed_;
  stream->queue.push_back(std::move(operation));
  if (already_needed) need(*mark);
  ++moves_;

  const bool eager = schedule.policy == Schedule::Policy::eager;
  uint64_t runs = eager ? UINT64_MAX : schedule.policy == Schedule::Policy::seeded ? draw(4) : 0;
  if (runs > 0 && choose(false)) {
    DeviceAccess access;
    while (runs-- > 0 && step(false)) {
    }
    access.leave_open();
  }
  progress.notify_all();
}

// ---------------------------------------------------------------------------------------------------- what runs next

bool Executor::is_ready(const CUstream_st& stream) const {
  if (stream.queue.empty()) return false;
  const auto free = [](const Operation& operation) {
    return std::all_of(operation.after.begin(), operation.after.end(), [](const auto& mark) { return mark->done; });
  };
  const Operation& head = *stream.queue.front();
  if (!head.rendezvous) return free(head);
  if (head.rendezvous->broken_ || head.rendezvous->arrived_ < head.rendezvous->parties()) return false;
  for (const auto& mark : head.rendezvous->marks_)
    if (mark->stream->ended + 1 != mark->position || !free(*mark->stream->queue.front())) return false;
  return true;
}

CUstream_st* Executor::choose(bool only_needed) {
  CUstream_st* chosen = nullptr;
  uint64_t ready = 0;
  for (CUstream_st* stream : streams_) {
    if ((only_needed && stream->needed <= stream->ended) || !is_ready(*stream)) continue;
    ++ready;
    if (schedule.policy == Schedule::Policy::eager || schedule.policy == Schedule::Policy::late) return stream;
    // lazy: the last of them. seeded: each with the same probability.
    if (schedule.policy == Schedule::Policy::lazy || draw(ready) == 0) chosen = stream;
  }
  return chosen;
}

bool Executor::step(bool only_needed) {
  CUstream_st* stream = choose(only_needed);
  if (!stream) return false;
  run_head(*stream);
  return true;
}

void Executor::run_work(CUstream_st& stream) {
  Operation& operation = *stream.queue.front();
  running = &operation.what;
  try {
    if (operation.is_host_function) {
      const HostCode closed;
      operation.work();
    } else if (operation.work) {
      operation.work();
    }
  } catch (const std::exception& error) {
    fail(fmt::format("{} on stream {} of device {}: {}", operation.what, stream.number, stream.device, error.what()));
  }
  operation.work = nullptr;  // what it captured ends as part of the operation
  running = nullptr;
}

void Executor::run_head(CUstream_st& stream) {
  if (stream.queue.front()->rendezvous) {
    run_rendezvous(stream.queue.front()->rendezvous);
  } else {
    stream.context.run([&] {
      begin_head(stream);
      run_work(stream);
      end_head(stream);
    });
    clean_up(stream);
  }
  ++moves_;
}

void Executor::run_rendezvous(const std::shared_ptr<Rendezvous> rendezvous) {
  std::vector<CUstream_st*> streams;
  for (const auto& mark : rendezvous->marks_) streams.push_back(mark->stream);
  SyncPoint all;
  for (CUstream_st* stream : streams)
    stream->context.run([&] {
      begin_head(*stream);
      all.release();
    });
  // The body runs as the first party; as_party() changes to the others.
  CUstream_st& first = *streams.front();
  first.context.run([&] {
    all.acquire();
    first.queue.front()->work = [&] {
      rendezvous->body_(*rendezvous);
      rendezvous->body_ = nullptr;
    };
    run_work(first);
    all.release();
  });
  for (CUstream_st* stream : streams) {
    stream->context.run([&] {
      all.acquire();
      end_head(*stream);
    });
    clean_up(*stream);
  }
  // Here, under the executor's lock: whoever made the rendezvous may end it without.
  for (auto& mark : rendezvous->marks_) mark.reset();
}

void Executor::begin_head(CUstream_st& stream) {
  Operation& head = *stream.queue.front();
  head.enqueued.acquire();
  for (const auto& mark : head.after) mark->order.acquire();
}

// The operation ends inside the stream's context too: what it used may be freed by nobody who did not wait for it.
void Executor::end_head(CUstream_st& stream) {
  Mark& mark = *stream.queue.front()->mark;
  mark.time = std::chrono::steady_clock::now();
  mark.done = true;
  mark.order.release();
  ++stream.ended;
  ++operations;
  stream.queue.pop_front();
}

void Executor::clean_up(CUstream_st& stream) {
  if (stream.destroyed && stream.queue.empty()) destroy_stream(&stream);
}

// Marks all that must run before `target` is done. Each operation is looked at once in its life.
void Executor::need(const Mark& target) {
  std::vector<const Mark*> todo{&target};
  while (!todo.empty()) {
    const Mark& mark = *todo.back();
    todo.pop_back();
    if (mark.done) continue;
    CUstream_st& stream = *mark.stream;
    stream.needed = std::max(stream.needed, stream.ended);
    while (stream.needed < mark.position) {
      const Operation& operation = stream.at(++stream.needed);
      for (const auto& earlier : operation.after) todo.push_back(earlier.get());
      if (!operation.rendezvous || std::exchange(operation.rendezvous->needed_, true)) continue;
      for (const auto& party : operation.rendezvous->marks_)
        if (party) todo.push_back(party.get());
    }
  }
}

bool Executor::poll(const std::shared_ptr<Mark>& mark) {
  if (!mark) return true;
  if (mark->done) {
    mark->order.acquire();
    return true;
  }
  need(*mark);
  if (!choose(/*only_needed=*/true)) return false;  // without the cost of access to device memory
  constexpr int kAtATime = 32;
  const DeviceAccess access;
  for (int ran = 0; ran < kAtATime && !mark->done && step(/*only_needed=*/true); ++ran) {
  }
  progress.notify_all();
  return false;
}

void Executor::withdraw(Rendezvous& rendezvous, int party) {
  std::shared_ptr<Mark>& mark = rendezvous.marks_[static_cast<size_t>(party)];
  if (!mark || mark->done) return;
  rendezvous.broken_ = true;
  rendezvous.body_ = nullptr;
  // What follows may end the rendezvous and its marks.
  const std::shared_ptr<Mark> own = std::move(mark);
  own->stream->at(own->position).rendezvous = nullptr;
  ++moves_;
  const DeviceAccess access;
  if (schedule.policy == Schedule::Policy::eager)
    while (step(false)) {
    }
  progress.notify_all();
}

// ---------------------------------------------------------------------------------------------------- the public face

Schedule schedule() {
  const Executor::Call call("schedule()");
  return Executor::instance().schedule;
}

void set_schedule(Schedule schedule) {
  const Executor::Call call("set_schedule()");
  Executor::instance().schedule = schedule;
  Executor::instance().draws = schedule.seed;
}

int64_t operations_run() {
  const Executor::Call call("operations_run()");
  return Executor::instance().operations;
}

void enqueue(cudaStream_t stream, std::string what, std::function<void()> work) {
  auto operation = std::make_unique<Operation>();
  operation->what = std::move(what);
  operation->work = std::move(work);
  const Executor::Call call(operation->what.c_str());
  Executor& executor = Executor::instance();
  executor.append(executor.resolve(stream, current_device()), std::move(operation));
}

Rendezvous::Rendezvous(std::string what, int parties, Body body)
    : what_(std::move(what)), body_(std::move(body)), marks_(static_cast<size_t>(parties)) {
  CHECK(parties >= 1, "the rendezvous '{}' has {} parties; give at least one", what_, parties);
}

void Rendezvous::as_party(int party, const std::function<void()>& work) {
  if (party == 0) return work();
  SyncPoint there, back;
  there.release();
  std::exception_ptr error;
  marks_.at(static_cast<size_t>(party))->stream->context.run([&] {
    there.acquire();
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    back.release();
  });
  back.acquire();
  if (error) std::rethrow_exception(error);
}

void withdraw(Rendezvous& rendezvous, int party) {
  const Executor::Call call("withdraw()");
  Executor::instance().withdraw(rendezvous, party);
}

void enqueue(cudaStream_t stream, std::shared_ptr<Rendezvous> rendezvous, int party) {
  auto operation = std::make_unique<Operation>();
  operation->what = rendezvous->what();
  operation->rendezvous = std::move(rendezvous);
  operation->party = party;
  const Executor::Call call(operation->what.c_str());
  Executor& executor = Executor::instance();
  executor.check_arrival(*operation->rendezvous, party);
  executor.append(executor.resolve(stream, current_device()), std::move(operation));
}

}  // namespace trencadis::cudasim
