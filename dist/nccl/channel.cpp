#include "dist/nccl/channel.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "runtime/cuda/handles.h"
#include "runtime/random.h"

namespace trencadis {

namespace {

// Whether NCCL orders the launches of several communicators. It reads the variable once, at its first call.
bool has_implicit_order() {
  static const bool has = [] {
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
    int version = 0;
    NCCL_CHECK(ncclGetVersion(&version));
    return version >= NCCL_VERSION(2, 26, 0) && std::strcmp(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "1") == 0;
  }();
  return has;
}

// Where this rank's GPU is: computer, then PCI address, then UUID, which tells the parts of a divided GPU apart.
using Place = Agreement::Note;

// Two ranks on one GPU: NCCL refuses or hangs.
void check_places(Agreement& agreement) {
  int device = 0;
  cudaDeviceProp properties{};
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  Place own{static_cast<int64_t>(hash_name(name)), properties.pciDomainID, properties.pciBusID, properties.pciDeviceID};
  std::memcpy(&own[4], properties.uuid.bytes, 16);
  const std::vector<Place> places = agreement.exchange("GPUs of the ranks", own);
  for (size_t a = 0; a < places.size(); ++a)
    for (size_t b = 0; b < a; ++b)
      CHECK(
          places[a] != places[b],
          "ranks {} and {} are on one GPU (PCI bus {}), and NCCL needs one for each rank: start at most as many ranks "
          "on a computer as it has GPUs (CUDA_VISIBLE_DEVICES may hide some), or let the ranks talk through MPI and "
          "host memory (make_staged_communicator)",
          b, a, places[a][2]);
}

}  // namespace

int device_of_rank(int local_rank) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  CHECK(status == cudaSuccess && count > 0,
        "no GPU for local rank {}: {} devices ({}); see nvidia-smi and "
        "CUDA_VISIBLE_DEVICES, or train on the CPU",
        local_rank, count, cudaGetErrorString(status));
  return local_rank % count;
}

NcclChannel::NcclChannel(Agreement& agreement, int rank, int size) {
  ncclUniqueId id{};
  if (rank == 0) NCCL_CHECK(ncclGetUniqueId(&id));
  Agreement::Note note;
  static_assert(sizeof id == sizeof note);
  std::memcpy(note.data(), &id, sizeof id);
  note = agreement.exchange("NCCL's id", note).front();
  std::memcpy(&id, note.data(), sizeof id);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  NCCL_CHECK(ncclCommInitRankConfig(&comm_, size, id, rank, &config));  // blocks until all ranks are in it
}

NcclChannel::~NcclChannel() {
  if (!comm_) return;
  ncclCommFinalize(comm_);
  ncclCommDestroy(comm_);
}

void NcclChannel::abort() {
  if (comm_) ncclCommAbort(comm_);
  comm_ = nullptr;
}

std::string NcclChannel::error() const {
  ncclResult_t result = ncclSuccess;
  if (!comm_ || ncclCommGetAsyncError(comm_, &result) != ncclSuccess || result == ncclSuccess ||
      result == ncclInProgress)
    return {};
  return fmt::format("NCCL: {}: {}", ncclGetErrorString(result), ncclGetLastError(comm_));
}

void NcclChannel::enter(Stream& stream) {
  if (last_stream_ && last_stream_ != &stream) stream.wait(last_);
}

Event NcclChannel::leave(Stream& stream) {
  last_stream_ = &stream;
  return last_ = stream.record();
}

NcclGroup::NcclGroup(Context& context_, std::unique_ptr<Communicator> host_, const NcclOptions& options_,
                     const AbortFlag* abort_)
    : context(context_),
      options(options_),
      abort(abort_),
      host(std::move(host_)),
      agreement(host->duplicate(), options.comm, abort) {
  check_places(agreement);
}

void NcclGroup::fail(const std::string& text) {
  if (failure.empty()) failure = text;
  agreement.fail(text);
  for (const auto& one : channels_)
    if (const auto channel = one.lock()) channel->abort();
}

std::shared_ptr<NcclChannel> NcclGroup::make_channel() {
  std::erase_if(channels_, [](const auto& one) { return one.expired(); });
  const bool shares = options.one_channel || !has_implicit_order();
  if (shares)
    for (const auto& one : channels_)
      if (auto channel = one.lock()) return channel;
  auto channel = std::make_shared<NcclChannel>(agreement, host->rank(), host->size());
  channels_.push_back(channel);
  return channel;
}

}  // namespace trencadis
