#include "dist/host_communicator.h"

#include <cstring>

namespace trencadis {

using namespace std::chrono_literals;

HostCommunicator::HostCommunicator(int rank, int size, CommOptions options, const AbortFlag* abort)
    : rank_(rank), size_(size), options_(options), abort_(abort) {
  CHECK(size >= 1 && rank >= 0 && rank < size, "rank {} of {} ranks", rank, size);
  // An MPI count is an int; 2^30 leaves it room.
  CHECK(options.chunk_elements >= 1 && options.chunk_elements <= int64_t{1} << 30,
        "chunks of {} elements; use 1 to 2^30", options.chunk_elements);
  CHECK(options.message_elements >= 1 && options.message_elements <= int64_t{1} << 30,
        "messages of {} elements; use 1 to 2^30", options.message_elements);
}

// -- the collectives: check what one rank can check, and put the call on the stream -----------------------------------

void HostCommunicator::all_reduce(View data, ReduceOp op, Stream& stream, CollectiveLabel label) {
  check_all_reduce(data, label.text);
  if (size_ == 1) return;
  Call call = make_call(CollectiveKind::all_reduce, std::move(label), data.dtype, data.size, op, 0);
  call.out = data;
  enqueue(stream, std::move(call));
}

void HostCommunicator::reduce_scatter(View in, View shard, bool accumulate, Stream& stream, CollectiveLabel label) {
  check_reduce_scatter(in, shard, accumulate, rank_, size_, label.text);
  Call call = make_call(CollectiveKind::reduce_scatter, std::move(label), in.dtype, shard.size, ReduceOp::sum, 0);
  call.in = in;
  call.out = shard;
  call.accumulate = accumulate;
  if (size_ > 1 || shard.data != in.data) enqueue(stream, std::move(call));
}

void HostCommunicator::all_gather(ConstView shard, View out, Stream& stream, CollectiveLabel label) {
  check_all_gather(shard, out, rank_, size_, label.text);
  Call call = make_call(CollectiveKind::all_gather, std::move(label), out.dtype, shard.size, ReduceOp::sum, 0);
  call.in = shard;
  call.out = out;
  if (size_ > 1 || shard.data != out.data) enqueue(stream, std::move(call));
}

void HostCommunicator::broadcast(View data, int root, Stream& stream, CollectiveLabel label) {
  check_broadcast(root, size_, label.text);
  if (size_ == 1) return;
  Call call = make_call(CollectiveKind::broadcast, std::move(label), data.dtype, data.size, ReduceOp::sum, root);
  call.out = data;
  enqueue(stream, std::move(call));
}

void HostCommunicator::barrier(CollectiveLabel label) {
  if (size_ > 1) run_on_host(std::move(label), [](const Call&) {});
}

void HostCommunicator::run_on_host(CollectiveLabel label, const std::function<void(const Call&)>& body) {
  Call call = make_call(CollectiveKind::barrier, std::move(label), DType::f32, 0, ReduceOp::sum, 0);
  call.fingerprint.sequence = next_sequence_++;
  perform(call, body);
}

// -- one call, in order -----------------------------------------------------------------------------------------------

// The right of queued work to enter the communicator, which may be gone by then. A stream that failed drops its work
// without running it: the ticket then says so, or later calls would wait for this one until the timeout.
class HostCommunicator::Ticket {
 public:
  Ticket(std::shared_ptr<Gate> gate, std::string what) : gate_(std::move(gate)), what_(std::move(what)) {}
  ~Ticket() {
    if (used_) return;
    const std::lock_guard lock(gate_->mutex);
    if (gate_->failure.empty()) gate_->failure = what_ + " was dropped by its stream, which had failed before";
    gate_->changed.notify_all();
  }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  template <typename F>
  void enter(F&& work) {
    used_ = true;
    {
      const std::lock_guard lock(gate_->mutex);
      if (gate_->closed) throw Error(what_ + " cannot run: its communicator was destroyed");
      ++gate_->inside;
    }
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(gate_->mutex);
      --gate_->inside;
      gate_->changed.notify_all();
    }
    if (error) std::rethrow_exception(error);
  }

 private:
  const std::shared_ptr<Gate> gate_;
  const std::string what_;
  bool used_ = false;
};

HostCommunicator::Call HostCommunicator::make_call(CollectiveKind kind, CollectiveLabel label, DType dtype,
                                                   int64_t count, ReduceOp op, int root) {
  Call call;
  call.fingerprint = make_fingerprint(0, kind, label.text, dtype, count, op, root);
  call.label = std::move(label);
  return call;
}

void HostCommunicator::enqueue(Stream& stream, Call call) {
  call.fingerprint.sequence = next_sequence_++;
  auto ticket = std::make_shared<Ticket>(gate_, fmt::format("{} on rank {}", describe(call.fingerprint), rank_));
  std::string what = fmt::format("{} {}", name_of(call.fingerprint.kind), call.label.text);
  stream.enqueue(std::move(what), [this, ticket = std::move(ticket), call = std::move(call)] {
    ticket->enter([&] { perform(call, [this](const Call& c) { dispatch_call(c); }); });
  });
}

void HostCommunicator::dispatch_call(const Call& call) {
  if (size_ > 1) {
    switch (call.fingerprint.kind) {
      case CollectiveKind::all_reduce:
        return do_all_reduce(call);
      case CollectiveKind::reduce_scatter:
        return do_reduce_scatter(call);
      case CollectiveKind::all_gather:
        return do_all_gather(call);
      case CollectiveKind::broadcast:
        return do_broadcast(call);
      case CollectiveKind::barrier:
        return;
    }
  }
  // Alone: reduce_scatter and all_gather of one piece.
  const void* piece = call.in.data;
  reduce_in_rank_order(call.out.data, {&piece, 1}, call.out.size, call.out.dtype, ReduceOp::sum, call.accumulate,
                       nullptr);
}

void HostCommunicator::perform(const Call& call, const std::function<void(const Call&)>& body) {
  wait_for_turn(call);
  try {
    inject_delay(options_, rank_, call.fingerprint.sequence, 0);
    if (size_ == 1) {
      body(call);
    } else {
      {
        const std::lock_guard lock(counters_mutex_);
        ++counters_.at(call.label.traffic, call.fingerprint.kind).calls;
      }
      agree(call);
      body(call);
      leave(call);
    }
    inject_delay(options_, rank_, call.fingerprint.sequence, 1);
  } catch (const std::exception& error) {
    failed(error.what());
    finish(error.what());
    throw;
  }
  finish("");
}

void HostCommunicator::wait_for_turn(const Call& call) const {
  Gate& gate = *gate_;
  std::unique_lock lock(gate.mutex);
  int64_t finished = gate.finished;
  auto last_progress = Clock::now();
  // Usually no wait at all; a barrier waits here for what is still on the stream.
  while (gate.failure.empty() && gate.finished != call.fingerprint.sequence) {
    gate.changed.wait_for(lock, 20ms);
    if (gate.finished != finished) last_progress = Clock::now();
    finished = gate.finished;
    check_patience(call, last_progress, [&] { return std::vector<int>{rank_}; });
  }
  if (!gate.failure.empty())
    throw Error(fmt::format("{} on rank {} cannot run: an earlier collective failed: {}", describe(call.fingerprint),
                            rank_, gate.failure));
}

void HostCommunicator::finish(const std::string& failure) {
  const std::lock_guard lock(gate_->mutex);
  ++gate_->finished;
  if (gate_->failure.empty()) gate_->failure = failure;
  gate_->changed.notify_all();
}

void HostCommunicator::check_patience(const Call& call, Clock::time_point last_progress,
                                      const std::function<std::vector<int>()>& missing) const {
  const double waited = std::chrono::duration<double>(Clock::now() - last_progress).count();
  std::string why;
  if (abort_ && *abort_)
    why = "abort was requested";
  else if (gate_->closed)
    why = "the communicator is being destroyed";
  else if (waited > options_.timeout_seconds)
    why = fmt::format("no progress for {:.1f} s; see whether they died or hang, or raise the timeout", waited);
  else
    return;
  throw Error(fmt::format("{}: rank {} of {} stops waiting for {}: {}", describe(call.fingerprint), rank_, size_,
                          name_ranks(missing()), why));
}

// -- the rest ---------------------------------------------------------------------------------------------------------

void HostCommunicator::count_sent(const Call& call, int64_t elements) {
  const std::lock_guard lock(counters_mutex_);
  CommCounters::Count& count = counters_.at(call.label.traffic, call.fingerprint.kind);
  count.elements_sent += elements;
  count.bytes_sent += elements * size_of(call.fingerprint.dtype);
}

CommCounters HostCommunicator::counters() const {
  const std::lock_guard lock(counters_mutex_);
  return counters_;
}

void HostCommunicator::close() noexcept {
  std::unique_lock lock(gate_->mutex);
  gate_->closed = true;
  gate_->changed.notify_all();
  gate_->changed.wait(lock, [&] { return gate_->inside == 0; });
}

bool HostCommunicator::has_failed() const {
  const std::lock_guard lock(gate_->mutex);
  return !gate_->failure.empty();
}

}  // namespace trencadis
