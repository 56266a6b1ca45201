// Ranks as threads on simulated GPUs, a device each.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "dist/nccl/nccl_communicator.h"
#include "dist/thread/thread_communicator.h"
#include "runtime/cuda/backend.h"
#include "runtime/cudasim/executor.h"

namespace trencadis::test {

// What a rank has.
struct SimRank {
  Context& context;
  Communicator& host;  // of the ranks' threads
  Communicator& comm;  // of their GPUs
};

// Runs body on a rank for each of `hosts` at once; afterwards throws the first error of the lowest rank that has one.
inline void on_sim_ranks(const std::vector<std::unique_ptr<Communicator>>& hosts, const NcclOptions& options,
                         const std::function<void(SimRank&)>& body, const AbortFlag* abort = nullptr) {
  const int size = static_cast<int>(hosts.size());
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  cudasim::HostThreads announced(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const cudasim::HostThreads::Member member(announced);
      const auto r = static_cast<size_t>(rank);
      try {
        CudaOptions cuda;
        cuda.device = rank;
        cuda.poison = true;
        Context context(make_cuda_backend(cuda));
        const auto comm = make_nccl_communicator(context, *hosts[r], options, abort);
        SimRank here{context, *hosts[r], *comm};
        body(here);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

inline void on_sim_ranks(int size, const NcclOptions& options, const std::function<void(SimRank&)>& body,
                         const AbortFlag* abort = nullptr) {
  on_sim_ranks(make_thread_communicators(size, options.comm), options, body, abort);
}

}  // namespace trencadis::test
