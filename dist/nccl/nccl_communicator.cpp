#include "dist/nccl/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <utility>

#include "dist/nccl/channel.h"
#include "dist/nccl/kernels.h"
#include "runtime/cuda/handles.h"
#include "runtime/cuda/streams.h"
#include "runtime/storage.h"

namespace trencadis {

namespace {

using Clock = std::chrono::steady_clock;

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f64:
      return ncclFloat64;
    case DType::i64:
      return ncclInt64;
    default:
      return ncclInt32;
  }
}

class NcclCommunicator final : public Communicator, private HostWatch {
 public:
  NcclCommunicator(std::shared_ptr<NcclGroup> group, int rank, int size)
      : group_(std::move(group)),
        rank_(rank),
        size_(size),
        number_(group_->communicators++),
        unwinding_(std::uncaught_exceptions()) {
    if (uses_nccl()) channel_ = group_->make_channel();
    waits().add(*this);
  }
  ~NcclCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Communicator> split(int color, int key) override;
  void all_reduce(View data, ReduceOp op, Stream& stream, CollectiveLabel label) override;
  void reduce_scatter(View in, View shard, bool accumulate, Stream& stream, CollectiveLabel label) override;
  void all_gather(ConstView shard, View out, Stream& stream, CollectiveLabel label) override;
  void broadcast(View data, int root, Stream& stream, CollectiveLabel label) override;
  void barrier(CollectiveLabel label) override;
  CommCounters counters() const override { return counters_; }

 private:
  // A collective that may not have ended on the device.
  struct Open {
    Fingerprint call;
    Event end;
  };
  using Issue = std::function<ncclResult_t(ncclComm_t, cudaStream_t)>;

  bool uses_nccl() const { return size_ > 1 || group_->options.also_alone; }
  HostWaits& waits() { return CudaStream::of(group_->context.compute_stream()).waits(); }
  Fingerprint describe_call(CollectiveKind kind, const CollectiveLabel& label, DType dtype, int64_t count, ReduceOp op,
                            int root) const;
  void launch(const Fingerprint& call, Traffic traffic, int64_t elements_sent, Stream& stream, const Issue& issue);
  void all_meet(CollectiveLabel label);
  bool all_say(const std::string& what, bool mine);
  void finish_open();
  void check(double waited_seconds) override;
  [[noreturn]] void give_up(const std::string& text);
  View scratch(DType dtype, int64_t n, Stream& stream);

  const std::shared_ptr<NcclGroup> group_;
  const int rank_, size_, number_;
  const int unwinding_;  // exceptions on their way when this was made
  std::shared_ptr<NcclChannel> channel_;
  CommCounters counters_;
  std::deque<Open> open_;
  int64_t stalled_in_ = -1;  // number of the collective that has been the oldest open one since then
  Clock::time_point stalled_since_;
  std::shared_ptr<Storage> scratch_;
  Event scratch_used_;
};

NcclCommunicator::~NcclCommunicator() {
  // Thrown away by an error elsewhere in this rank: the others are told, and nobody is waited for.
  if (std::uncaught_exceptions() > unwinding_ && group_->failure.empty())
    group_->fail(fmt::format("an error elsewhere in rank {} ended its communicators", rank_));
  try {
    finish_open();
  } catch (const std::exception&) {  // it has been aborted, and nobody asks for the result
  }
  try {
    if (scratch_) scratch_used_.wait_on_host();
  } catch (const std::exception&) {
  }
  waits().remove(*this);
}

// ---------------------------------------------------------------------------------------------------- collectives

Fingerprint NcclCommunicator::describe_call(CollectiveKind kind, const CollectiveLabel& label, DType dtype,
                                            int64_t count, ReduceOp op, int root) const {
  // Duplicates write into one list of calls: which of them it was is part of the call.
  const std::string text = number_ == 0 ? label.text : fmt::format("channel {}: {}", number_, label.text);
  return make_fingerprint(0, kind, text, dtype, count, op, root);
}

void NcclCommunicator::launch(const Fingerprint& described, Traffic traffic, int64_t elements_sent, Stream& stream,
                              const Issue& issue) {
  Fingerprint call = described;
  CHECK(group_->failure.empty(), "{} on rank {} cannot run: an earlier collective failed: {}", describe(call), rank_,
        group_->failure);
  const cudaStream_t handle = CudaStream::of(stream).handle();
  group_->agreement.add(call);
  if (size_ > 1) {
    CommCounters::Count& count = counters_.at(traffic, call.kind);
    ++count.calls;
    count.elements_sent += elements_sent;
    count.bytes_sent += elements_sent * size_of(call.dtype);
  }
  channel_->enter(stream);
  const ncclResult_t status = issue(channel_->get(), handle);
  open_.push_back({call, channel_->leave(stream)});
  if (scratch_) scratch_used_ = open_.back().end;
  // Who disagrees is better known to the ranks than to NCCL, a moment later.
  if (status != ncclSuccess) {
    const std::string why = fmt::format("{}: {}", ncclGetErrorString(status), ncclGetLastError(channel_->get()));
    const std::string known = group_->agreement.failure_within(1);
    give_up(known.empty() ? fmt::format("{} on rank {}: NCCL: {}", describe(call), rank_, why) : known);
  }
  if (open_.size() > 1024)
    while (!open_.empty() && open_.front().end.happened()) open_.pop_front();
}

void NcclCommunicator::all_reduce(View data, ReduceOp op, Stream& stream, CollectiveLabel label) {
  check_all_reduce(data, label.text);
  if (!uses_nccl()) return;
  // A ring reduces W pieces, then gathers them: rank r keeps back the one that it owns, then its neighbour's.
  const Pieces pieces{data.size, (data.size + size_ - 1) / size_};
  const int64_t sent = 2 * data.size - pieces.count(rank_) - pieces.count((rank_ + 1) % size_);
  const Fingerprint call = describe_call(CollectiveKind::all_reduce, label, data.dtype, data.size, op, 0);
  const auto n = static_cast<size_t>(data.size);
  launch(call, label.traffic, sent, stream, [&](ncclComm_t comm, cudaStream_t handle) {
    if (op == ReduceOp::sum)
      return ncclAllReduce(data.data, data.data, n, nccl_type(data.dtype), ncclSum, comm, handle);
    if (data.dtype == DType::i64) return ncclAllReduce(data.data, data.data, n, ncclInt64, ncclMax, comm, handle);
    const DType type = key_type(data.dtype);
    const View keys =
        size_of(type) == size_of(data.dtype) ? View(data.data, type, data.size) : scratch(type, data.size, stream);
    keys_of_values(keys, data, handle);
    const ncclResult_t status = ncclAllReduce(keys.data, keys.data, n, nccl_type(type), ncclMax, comm, handle);
    values_of_keys(data, keys, handle);
    return status;
  });
}

void NcclCommunicator::reduce_scatter(View in, View shard, bool accumulate, Stream& stream, CollectiveLabel label) {
  check_reduce_scatter(in, shard, accumulate, rank_, size_, label.text);
  const cudaStream_t handle = CudaStream::of(stream).handle();
  if (!uses_nccl()) {
    if (accumulate)
      add_on_stream(shard, in, handle);
    else if (shard.data != in.data && shard.size > 0)
      CUDA_CHECK(
          cudaMemcpyAsync(shard.data, in.data, static_cast<size_t>(in.bytes()), cudaMemcpyDeviceToDevice, handle));
    return;
  }
  const Fingerprint call = describe_call(CollectiveKind::reduce_scatter, label, in.dtype, shard.size, ReduceOp::sum, 0);
  launch(call, label.traffic, (size_ - 1) * shard.size, stream, [&](ncclComm_t comm, cudaStream_t) {
    const View sum = accumulate ? scratch(shard.dtype, shard.size, stream) : shard;
    const ncclResult_t status = ncclReduceScatter(in.data, sum.data, static_cast<size_t>(shard.size),
                                                  nccl_type(shard.dtype), ncclSum, comm, handle);
    if (accumulate) add_on_stream(shard, sum, handle);
    return status;
  });
}

void NcclCommunicator::all_gather(ConstView shard, View out, Stream& stream, CollectiveLabel label) {
  check_all_gather(shard, out, rank_, size_, label.text);
  const cudaStream_t handle = CudaStream::of(stream).handle();
  if (!uses_nccl()) {
    if (shard.data != out.data && shard.size > 0)
      CUDA_CHECK(
          cudaMemcpyAsync(out.data, shard.data, static_cast<size_t>(out.bytes()), cudaMemcpyDeviceToDevice, handle));
    return;
  }
  const Fingerprint call = describe_call(CollectiveKind::all_gather, label, out.dtype, shard.size, ReduceOp::sum, 0);
  launch(call, label.traffic, (size_ - 1) * shard.size, stream, [&](ncclComm_t comm, cudaStream_t) {
    return ncclAllGather(shard.data, out.data, static_cast<size_t>(shard.size), nccl_type(out.dtype), comm, handle);
  });
}

void NcclCommunicator::broadcast(View data, int root, Stream& stream, CollectiveLabel label) {
  check_broadcast(root, size_, label.text);
  if (!uses_nccl()) return;
  const bool is_last = (rank_ + 1) % size_ == root;
  const Fingerprint call = describe_call(CollectiveKind::broadcast, label, data.dtype, data.size, ReduceOp::sum, root);
  launch(call, label.traffic, is_last ? 0 : data.size, stream, [&](ncclComm_t comm, cudaStream_t handle) {
    return ncclBroadcast(data.data, data.data, static_cast<size_t>(data.size), nccl_type(data.dtype), root, comm,
                         handle);
  });
}

// Of the compute stream's pool, for use on `stream`; the order that the pool asks for is made when it grows.
View NcclCommunicator::scratch(DType dtype, int64_t n, Stream& stream) {
  const int64_t bytes = n * size_of(dtype);
  if (!scratch_ || scratch_->bytes() < bytes) {
    scratch_used_.wait_on_host();
    scratch_.reset();
    scratch_ = Storage::create(group_->context, bytes, MemoryCategory::communication, "sums of a reduce-scatter");
    stream.wait(group_->context.compute_stream().record());
  }
  return {scratch_->data(), dtype, n};
}

// ---------------------------------------------------------------------------------------------------- waiting

void NcclCommunicator::barrier(CollectiveLabel label) {
  if (size_ == 1) return;
  ++counters_.at(label.traffic, CollectiveKind::barrier).calls;
  all_meet(std::move(label));
}

// Returns when everything issued here has ended and all ranks are at this call.
void NcclCommunicator::all_meet(CollectiveLabel label) {
  Fingerprint call = describe_call(CollectiveKind::barrier, label, DType::f32, 0, ReduceOp::sum, 0);
  CHECK(group_->failure.empty(), "{} on rank {} cannot run: an earlier collective failed: {}", describe(call), rank_,
        group_->failure);
  finish_open();
  group_->agreement.add(call);
  try {
    group_->agreement.wait_for(call);
  } catch (const Error& error) {
    give_up(error.what());
  }
}

// Whether `mine` holds on every rank.
bool NcclCommunicator::all_say(const std::string& what, bool mine) {
  try {
    const auto notes = group_->agreement.exchange(what, {mine});
    return std::all_of(notes.begin(), notes.end(), [](const Agreement::Note& note) { return note[0] == 1; });
  } catch (const Error& error) {
    give_up(error.what());
  }
}

void NcclCommunicator::finish_open() {
  if (!open_.empty()) Event(open_.back().end).wait_on_host();
  open_.clear();
}

void NcclCommunicator::check(double waited_seconds) {
  if (open_.empty() || !group_->failure.empty()) return;
  if (const std::string failure = group_->agreement.failure(); !failure.empty())
    give_up(fmt::format("{} was aborted: {}", describe(open_.front().call), failure));
  if (waited_seconds < 1e-3) return;
  if (const std::string error = channel_->error(); !error.empty()) {
    const std::string known = group_->agreement.failure_within(1);
    give_up(known.empty() ? fmt::format("{} on rank {} of {}: {}", describe(open_.front().call), rank_, size_, error)
                          : fmt::format("{} was aborted: {}", describe(open_.front().call), known));
  }
  if (group_->abort && *group_->abort) give_up(group_->agreement.gives_up(open_.front().call, "abort was requested"));

  // Progress is an older collective that has ended. (Asking makes the simulator's device work, so it is asked late.)
  if (waited_seconds < 10e-3) return;
  while (!open_.empty() && open_.front().end.happened()) open_.pop_front();
  if (open_.empty()) return;
  const auto now = Clock::now();
  const auto wait_began =
      now - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(waited_seconds));
  if (open_.front().call.sequence != stalled_in_) {
    stalled_in_ = open_.front().call.sequence;
    stalled_since_ = wait_began;
    if (waited_seconds > 0.1) stalled_since_ = now;  // something ended during this wait
  }
  stalled_since_ = std::max(stalled_since_, wait_began);
  const double stalled = std::chrono::duration<double>(now - stalled_since_).count();
  if (stalled > group_->options.comm.timeout_seconds)
    give_up(group_->agreement.gives_up(
        open_.front().call,
        fmt::format("no progress for {:.1f} s; see whether they died or hang, or raise the timeout", stalled)));
}

void NcclCommunicator::give_up(const std::string& text) {
  group_->fail(text);
  open_.clear();
  throw Error(text);
}

// ---------------------------------------------------------------------------------------------------- making groups

std::unique_ptr<Communicator> NcclCommunicator::split(int color, int key) {
  if (size_ > 1) all_meet({"split"});
  auto host = group_->host->split(color, key);
  // The same ranks in the same order share this group, and with it the list of calls.
  if (size_ == 1 || all_say("duplicates", host->size() == size_ && host->rank() == rank_))
    return std::make_unique<NcclCommunicator>(group_, rank_, size_);
  const int new_rank = host->rank(), new_size = host->size();
  auto group = std::make_shared<NcclGroup>(group_->context, std::move(host), group_->options, group_->abort);
  return std::make_unique<NcclCommunicator>(std::move(group), new_rank, new_size);
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Context& context, Communicator& host, NcclOptions options,
                                                     const AbortFlag* abort) {
  auto group = std::make_shared<NcclGroup>(context, host.duplicate(), options, abort);
  return std::make_unique<NcclCommunicator>(std::move(group), host.rank(), host.size());
}

}  // namespace trencadis
