// NCCL's functions, as far as dist/nccl uses them. Signatures are those of NVIDIA's header.
//
// Collectives return at once, as NCCL's do; between ncclGroupStart() and ncclGroupEnd() they are kept back until the
// end. Environment: TRENCADIS_SIM_PATIENCE, the seconds after which ranks that wait for others to join give up (60).
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include "dist/ncclsim/group.h"
#include "dist/ncclsim/process_group.h"
#include "dist/ncclsim/thread_group.h"
#include "runtime/check.h"
#include "runtime/cudasim/device_memory.h"
#include "runtime/cudasim/executor.h"
#include "runtime/cudasim/executor_state.h"

namespace trencadis::ncclsim {

namespace {

thread_local std::string last_error;  // of calls without a communicator
thread_local int group_depth = 0;
thread_local std::vector<std::function<ncclResult_t()>> kept_back;

ncclResult_t failed(ncclResult_t result, std::string text) {
  last_error = std::move(text);
  return result;
}

std::chrono::seconds patience() {
  const char* text = std::getenv("TRENCADIS_SIM_PATIENCE");
  return std::chrono::seconds(text && std::atoi(text) > 0 ? std::atoi(text) : 60);
}

// Both buffers must be device memory, as long as the collective says.
void check_buffers(const CollectiveCall& call, const Buffers& buffers, int ranks) {
  const cudasim::Executor::Call lock("a collective");
  const auto check = [&](const char* data, uint64_t elements, const char* name) {
    if (elements == 0) return;
    if (cudasim::residence_of(data, elements * size_of(call.type)) != cudasim::Residence::device)
      cudasim::fail(fmt::format("the {} of {} is not in device memory", name, describe(call)));
  };
  check(buffers.in, elements_in(call, ranks), "input");
  check(buffers.out, elements_out(call, ranks), "output");
}

ncclResult_t issue(ncclComm_t comm, const CollectiveCall& call, const void* in, void* out, cudaStream_t stream) {
  if (!comm) return failed(ncclInvalidArgument, "a collective on no communicator");
  const int ranks = comm->group->size();
  if (!is_supported(call)) return failed(ncclInvalidArgument, describe(call) + " is not simulated");
  if (call.root < 0 || call.root >= ranks) return failed(ncclInvalidArgument, describe(call) + ": no such root");
  if (cudasim::current_device() != comm->device)
    return failed(ncclInvalidUsage, fmt::format("{}: the thread's device is {}, the communicator's {} (cudaSetDevice)",
                                                describe(call), cudasim::current_device(), comm->device));
  const Buffers buffers{static_cast<const char*>(in), static_cast<char*>(out)};
  const auto now = [=] {
    check_buffers(call, buffers, ranks);
    return comm->group->issue(comm->rank, call, buffers, stream);
  };
  if (group_depth == 0) return now();
  kept_back.emplace_back(now);
  return ncclSuccess;
}

}  // namespace

std::shared_ptr<Group> join_group(const ncclUniqueId& id, int ranks, int rank, int device) {
  CHECK(ranks >= 1, "a communicator of {} ranks", ranks);
  if (std::shared_ptr<Group> group = join_process_group(id, ranks, rank, device)) return group;
  Library& library = Library::instance();
  std::unique_lock lock(library.mutex);
  const std::string name = id.internal;
  std::shared_ptr<ThreadGroup>& entry = library.joining[name];
  if (!entry) {
    entry = std::make_shared<ThreadGroup>(library.groups_made++, ranks);
    ++library.groups_alive;
  }
  const std::shared_ptr<ThreadGroup> group = entry;
  if (group->add_member(ranks, rank, device)) library.joining.erase(name);
  library.changed.notify_all();
  library.changed.wait_for(lock, patience(), [&] { return group->complete() || !group->error_locked().empty(); });
  // A group that is complete may have an error already: of ranks that were quicker than this one.
  const std::string error = group->complete()               ? ""
                            : group->error_locked().empty() ? fmt::format("not all of {} ranks have come", ranks)
                                                            : group->error_locked();
  if (!error.empty()) library.joining.erase(name);
  lock.unlock();  // before the group may end here
  CHECK(error.empty(), "{}", error);
  return group;
}

}  // namespace trencadis::ncclsim

using namespace trencadis::ncclsim;  // NOLINT: this file defines C functions

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made{0};
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "%s", unique_name(made++).c_str());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t*) {
  *comm = nullptr;
  const int device = trencadis::cudasim::current_device();
  try {
    auto made = std::make_unique<ncclComm>();
    made->group = join_group(id, ranks, rank, device);
    made->rank = rank;
    made->device = device;
    *comm = made.release();  // until ncclCommDestroy() or ncclCommAbort()
  } catch (const trencadis::Error& error) {
    return failed(ncclInvalidUsage, error.what());
  }
  return ncclSuccess;
}

// Everything that was issued has come to the executor; nothing is left to flush.
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return comm ? ncclSuccess : ncclInvalidArgument; }

// Collectives that are still queued are done nevertheless.
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm) return ncclInvalidArgument;
  comm->group->abort(comm->rank);
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  comm->error_text = comm->group->error();
  *error = comm->error_text.empty() ? ncclSuccess : ncclInvalidUsage;
  return ncclSuccess;
}

const char* ncclGetLastError(ncclComm_t comm) { return comm ? comm->error_text.c_str() : last_error.c_str(); }

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "an error that is not simulated";
  }
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return failed(ncclInvalidUsage, "ncclGroupEnd() without ncclGroupStart()");
  if (--group_depth > 0) return ncclSuccess;
  for (const auto& call : std::exchange(kept_back, {}))
    if (const ncclResult_t result = call()) return result;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, {Kind::all_reduce, count, type, op, 0}, in, out, stream);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, {Kind::reduce_scatter, count, type, op, 0}, in, out, stream);
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return issue(comm, {Kind::all_gather, count, type, ncclSum, 0}, in, out, stream);
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return issue(comm, {Kind::broadcast, count, type, ncclSum, root}, in, out, stream);
}

}  // extern "C"
