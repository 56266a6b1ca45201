// The collective tests on GPUs that are simulated, with ranks as processes that share device memory; and the staged
// communicator, whose ranks need not share anything.
#define DOCTEST_CONFIG_IMPLEMENT

#include "../mpi/rank_main.h"
#include "dist/nccl/nccl_communicator.h"
#include "dist/nccl/staged_communicator.h"
#include "dist/ncclsim/process_group.h"
#include "on_device.h"
#include "runtime/cuda/backend.h"

namespace trencadis::test {

namespace {
bool staged = false;  // this run's communicator, from the command line
int local_rank = 0;
}  // namespace

bool accumulates_the_sum() { return !staged; }

void on_ranks(const CommOptions& options, const std::function<void(Communicator&)>& body, AbortFlag* abort) {
  const auto world = make_mpi_world(options, abort);
  CudaOptions cuda;
  cuda.device = staged ? 0 : device_of_rank(local_rank);  // staged: all on one
  Context context(make_cuda_backend(cuda));
  NcclOptions nccl;
  nccl.comm = options;
  // Little staging memory, so that small arrays are cut.
  const auto comm = staged ? make_staged_communicator(context, world->duplicate(), 4096)
                           : make_nccl_communicator(context, *world, nccl, abort);
  OnDevice through(context, *comm);
  try {
    body(through);
  } catch (const std::exception& error) {
    FAIL_CHECK(error.what());
  }
  world->barrier({"end of a test"});
}

}  // namespace trencadis::test

// Arguments: `nccl` or `staged`, then doctest's.
int main(int argc, char** argv) {
  using namespace trencadis;
  const MpiEnvironment mpi;
  test::staged = argc > 1 && std::string(argv[1]) == "staged";
  const auto world = make_mpi_world();
  test::local_rank = mpi.local_rank();
  if (!test::staged) ncclsim::share_device_memory(*world, size_t{1} << 30);
  return test::run_tests(argc - 1, argv + 1, mpi);
}
