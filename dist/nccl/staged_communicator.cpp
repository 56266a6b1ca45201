#include "dist/nccl/staged_communicator.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "dist/collective.h"
#include "runtime/cuda/handles.h"
#include "runtime/cuda/streams.h"
#include "runtime/host_streams.h"

namespace trencadis {

namespace {

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(Context& context, std::unique_ptr<Communicator> host, int64_t staging_bytes);
  ~StagedCommunicator() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<StagedCommunicator>(context_, host_->split(color, key), 2 * half_bytes_);
  }
  void all_reduce(View data, ReduceOp op, Stream& stream, CollectiveLabel label) override;
  void reduce_scatter(View in, View shard, bool accumulate, Stream& stream, CollectiveLabel label) override;
  void all_gather(ConstView shard, View out, Stream& stream, CollectiveLabel label) override;
  void broadcast(View data, int root, Stream& stream, CollectiveLabel label) override;
  void barrier(CollectiveLabel label) override;
  CommCounters counters() const override { return counters_; }

 private:
  // One of two pieces of pinned memory: while the device reads the one, the host fills the other.
  struct Half {
    char* data = nullptr;
    Event free;
  };
  using Body = std::function<void(char* pinned, int64_t first, int64_t n)>;

  // Calls body for chunks of [0, count) of which `parts` times as many elements fit into half the pinned memory; at
  // least once, so that a collective of nothing is one as well. Counts one call.
  void in_chunks(CollectiveKind kind, Traffic traffic, int64_t count, DType dtype, int64_t parts, Stream& stream,
                 const Body& body);
  void fetch(char* pinned, ConstView device);  // these two: in the order of stream_
  void store(View device, const char* pinned);
  void arrive() { stream_->record().wait_on_host(); }  // what was fetched

  Context& context_;
  const std::unique_ptr<Communicator> host_;
  const int64_t half_bytes_;
  std::array<Half, 2> halves_;
  size_t next_ = 0;
  CudaStream* stream_ = nullptr;  // of the call
  InlineStream inline_{"staged"};
  Event last_;
  CommCounters counters_;
};

StagedCommunicator::StagedCommunicator(Context& context, std::unique_ptr<Communicator> host, int64_t staging_bytes)
    : context_(context), host_(std::move(host)), half_bytes_(staging_bytes / 2) {
  CHECK(half_bytes_ >= 8 * (host_->size() + 1), "{} bytes of staging memory for {} ranks; give at least {}",
        staging_bytes, host_->size(), 16 * (host_->size() + 1));
  for (Half& half : halves_)
    CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&half.data), static_cast<size_t>(half_bytes_)));
}

StagedCommunicator::~StagedCommunicator() {
  for (const Half& half : halves_) cudaFreeHost(half.data);  // waits for the device
}

void StagedCommunicator::in_chunks(CollectiveKind kind, Traffic traffic, int64_t count, DType dtype, int64_t parts,
                                   Stream& stream, const Body& body) {
  stream_ = &CudaStream::of(stream);
  const CommCounters before = host_->counters();
  const int64_t chunk = half_bytes_ / (parts * size_of(dtype));
  int64_t first = 0;
  do {
    Half& half = halves_[next_++ % 2];
    half.free.wait_on_host();
    const int64_t n = std::min(chunk, count - first);
    body(half.data, first, n);
    half.free = stream_->record();
    first += n;
  } while (first < count);
  last_ = stream_->record();
  CommCounters sent = host_->counters() - before;
  if (size() > 1) sent.at(traffic, kind).calls = 1;
  counters_ += sent;
}

void StagedCommunicator::fetch(char* pinned, ConstView device) {
  if (device.size > 0)
    CUDA_CHECK(cudaMemcpyAsync(pinned, device.data, static_cast<size_t>(device.bytes()), cudaMemcpyDeviceToHost,
                               stream_->handle()));
}

void StagedCommunicator::store(View device, const char* pinned) {
  if (device.size > 0)
    CUDA_CHECK(cudaMemcpyAsync(device.data, pinned, static_cast<size_t>(device.bytes()), cudaMemcpyHostToDevice,
                               stream_->handle()));
}

void StagedCommunicator::all_reduce(View data, ReduceOp op, Stream& stream, CollectiveLabel label) {
  check_all_reduce(data, label.text);
  if (size() == 1) return;
  in_chunks(CollectiveKind::all_reduce, label.traffic, data.size, data.dtype, 1, stream,
            [&](char* pinned, int64_t first, int64_t n) {
              fetch(pinned, data.slice(first, n));
              arrive();
              host_->all_reduce(View(pinned, data.dtype, n), op, inline_, label);
              store(data.slice(first, n), pinned);
            });
}

void StagedCommunicator::reduce_scatter(View in, View shard, bool accumulate, Stream& stream, CollectiveLabel label) {
  check_reduce_scatter(in, shard, accumulate, rank(), size(), label.text);
  const int64_t W = size();
  in_chunks(CollectiveKind::reduce_scatter, label.traffic, shard.size, in.dtype, W + 1, stream,
            [&](char* pinned, int64_t first, int64_t n) {
              const int64_t bytes = n * size_of(in.dtype);
              char* const own = pinned + W * bytes;
              for (int64_t r = 0; r < W; ++r) fetch(pinned + r * bytes, in.slice(r * shard.size + first, n));
              if (accumulate) fetch(own, shard.slice(first, n));
              arrive();
              host_->reduce_scatter(View(pinned, in.dtype, W * n), View(own, in.dtype, n), accumulate, inline_, label);
              store(shard.slice(first, n), own);
            });
}

void StagedCommunicator::all_gather(ConstView shard, View out, Stream& stream, CollectiveLabel label) {
  check_all_gather(shard, out, rank(), size(), label.text);
  const int64_t W = size();
  in_chunks(CollectiveKind::all_gather, label.traffic, shard.size, out.dtype, W + 1, stream,
            [&](char* pinned, int64_t first, int64_t n) {
              const int64_t bytes = n * size_of(out.dtype);
              char* const own = pinned + W * bytes;
              fetch(own, shard.slice(first, n));
              arrive();
              host_->all_gather(ConstView(own, out.dtype, n), View(pinned, out.dtype, W * n), inline_, label);
              for (int64_t r = 0; r < W; ++r) store(out.slice(r * shard.size + first, n), pinned + r * bytes);
            });
}

void StagedCommunicator::broadcast(View data, int root, Stream& stream, CollectiveLabel label) {
  check_broadcast(root, size(), label.text);
  if (size() == 1) return;
  in_chunks(CollectiveKind::broadcast, label.traffic, data.size, data.dtype, 1, stream,
            [&](char* pinned, int64_t first, int64_t n) {
              if (rank() == root) fetch(pinned, data.slice(first, n));
              arrive();
              host_->broadcast(View(pinned, data.dtype, n), root, inline_, label);
              if (rank() != root) store(data.slice(first, n), pinned);
            });
}

void StagedCommunicator::barrier(CollectiveLabel label) {
  last_.wait_on_host();
  const CommCounters before = host_->counters();
  host_->barrier(std::move(label));
  counters_ += host_->counters() - before;
}

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(Context& context, std::unique_ptr<Communicator> host,
                                                       int64_t staging_bytes) {
  return std::make_unique<StagedCommunicator>(context, std::move(host), staging_bytes);
}

}  // namespace trencadis
