// The start that dist/nccl must not have: rank 0 broadcasts NCCL's id over the host and enters NCCL. On a host that sends
// late (late_host.h) the id stays behind: rank 0 waits inside NCCL for the others, and they for the id.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "../late_host.h"
#include "planted.h"
#include "runtime/host_streams.h"

namespace trencadis::planted {

namespace {

constexpr int kRanks = 2;

void start(Communicator& host) {
  cudaSetDevice(host.rank());
  ncclUniqueId id{};
  if (host.rank() == 0) ncclGetUniqueId(&id);
  int64_t words[sizeof id / sizeof(int64_t)];
  std::memcpy(words, &id, sizeof id);
  InlineStream stream("host");
  host.broadcast(View(words, static_cast<int64_t>(std::size(words))), 0, stream, {"NCCL's id"});
  std::memcpy(&id, words, sizeof id);
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  const ncclResult_t status = ncclCommInitRankConfig(&comm, host.size(), id, host.rank(), &config);
  if (status != ncclSuccess) throw Error(ncclGetLastError(nullptr));
  ncclCommDestroy(comm);
}

}  // namespace

int start_after_broadcast() {
  setenv("TRENCADIS_SIM_PATIENCE", "2", /*overwrite=*/1);  // of rank 0 inside NCCL
  const auto hosts = test::LateHost::make(kRanks, /*patience_seconds=*/1);
  std::vector<std::exception_ptr> errors(kRanks);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < kRanks; ++r)
    threads.emplace_back([&, r] {
      try {
        start(*hosts[r]);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t r = kRanks; r-- > 0;)  // the one that has no id knows why
    if (errors[r]) std::rethrow_exception(errors[r]);
  return 0;
}

}  // namespace trencadis::planted
