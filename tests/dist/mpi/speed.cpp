// How long collectives take: `mpirun -np 2 bin/dist_speed [repeats]`. Prints, on rank 0, the median over repeats of the
// time until the slowest rank is done, beside MPI's own collective where there is one that sums.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "dist/mpi/mpi_communicator.h"
#include "dist/mpi/mpi_environment.h"
#include "runtime/host_streams.h"

using namespace trencadis;

namespace {

template <typename F>
void measure(Communicator& comm, const char* what, int repeats, F&& work) {
  std::vector<double> times;
  for (int i = 0; i < repeats + 3; ++i) {  // the first touch memory and set up connections
    comm.barrier({"start"});
    const auto start = std::chrono::steady_clock::now();
    work();
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    InlineStream stream("speed");
    comm.all_reduce(View(&seconds, 1), ReduceOp::max, stream, {"time"});
    if (i >= 3) times.push_back(seconds);
  }
  std::sort(times.begin(), times.end());
  if (comm.rank() == 0)
    fmt::print("{:<36} {:9.3f} ms (best {:.3f})\n", what, times[times.size() / 2] * 1e3, times[0] * 1e3);
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 20;
  MpiEnvironment mpi;
  const auto comm = make_mpi_world();
  WorkerStream worker("comm");
  InlineStream inline_stream("inline");
  const int64_t n = (int64_t{43} << 20) / 4 / mpi.size();  // elements of a shard of 43 MiB of f32
  std::vector<float> full(static_cast<size_t>(n * mpi.size()), 1.0f), shard(static_cast<size_t>(n), 0.0f);
  const View all(full.data(), n * mpi.size()), mine(shard.data(), n), piece = all.slice(mpi.rank() * n, n);

  measure(*comm, "reduce_scatter 43 MiB", repeats, [&] {
    comm->reduce_scatter(all, mine, false, worker, {"x"});
    worker.synchronize();
  });
  measure(*comm, "reduce_scatter 43 MiB, accumulating", repeats, [&] {
    comm->reduce_scatter(all, mine, true, worker, {"x"});
    worker.synchronize();
  });
  measure(*comm, "MPI_Reduce_scatter_block", repeats, [&] {
    MPI_Reduce_scatter_block(full.data(), shard.data(), static_cast<int>(n), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  });
  measure(*comm, "all_gather 43 MiB, in place", repeats, [&] {
    comm->all_gather(piece, all, worker, {"x"});
    worker.synchronize();
  });
  measure(*comm, "MPI_Allgather, in place", repeats, [&] {
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, full.data(), static_cast<int>(n), MPI_FLOAT, MPI_COMM_WORLD);
  });
  measure(*comm, "all_reduce 43 MiB", repeats, [&] {
    comm->all_reduce(all, ReduceOp::sum, worker, {"x"});
    worker.synchronize();
  });
  measure(*comm, "all_reduce 24 B, inline stream", repeats * 20,
          [&] { comm->all_reduce(View(full.data(), 6), ReduceOp::sum, inline_stream, {"x"}); });
  measure(*comm, "all_reduce 24 B, worker stream", repeats * 20, [&] {
    comm->all_reduce(View(full.data(), 6), ReduceOp::sum, worker, {"x"});
    worker.synchronize();
  });
  measure(*comm, "all_reduce 16 KiB, worker stream", repeats * 20, [&] {
    comm->all_reduce(View(full.data(), 4096), ReduceOp::sum, worker, {"x"});
    worker.synchronize();
  });
  measure(*comm, "all_gather 512 KiB, worker stream", repeats * 20, [&] {
    const int64_t k = (512 << 10) / 4 / mpi.size();
    comm->all_gather(mine.slice(0, k), all.slice(0, k * mpi.size()), worker, {"x"});
    worker.synchronize();
  });
  measure(*comm, "reduce_scatter 512 KiB, worker stream", repeats * 20, [&] {
    const int64_t k = (512 << 10) / 4 / mpi.size();
    comm->reduce_scatter(all.slice(0, k * mpi.size()), mine.slice(0, k), false, worker, {"x"});
    worker.synchronize();
  });
}
