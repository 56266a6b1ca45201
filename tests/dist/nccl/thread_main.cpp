// The collective tests on GPUs that are simulated, with ranks as threads: on_ranks() for test_dist_nccl_sim.
#include "../ranks.h"
#include "on_device.h"
#include "sim_ranks.h"

namespace trencadis::test {

bool accumulates_the_sum() { return true; }

void on_ranks(const CommOptions& options, const std::function<void(Communicator&)>& body, AbortFlag* abort) {
  for (int size = 1; size <= 3; ++size) {
    if (abort) *abort = false;
    NcclOptions nccl;
    nccl.comm = options;
    const auto together =
        make_thread_communicators(size);  // a rank's communicator lives until all bodies have returned
    on_sim_ranks(
        size, nccl,
        [&](SimRank& rank) {
          CAPTURE(size);
          OnDevice comm(rank.context, rank.comm);
          try {
            body(comm);
          } catch (const std::exception& error) {
            FAIL_CHECK("rank " << comm.rank() << " of " << size << ": " << error.what());
          }
          together[static_cast<size_t>(comm.rank())]->barrier({"end of a test"});
        },
        abort);
  }
}

}  // namespace trencadis::test
