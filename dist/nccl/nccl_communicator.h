// The communicator of GPUs: NCCL's collectives on CUDA streams.
//
// A call puts NCCL's kernel on the stream and returns; the host never waits for another rank. What NCCL leaves out is
// done beside it: ranks that disagree, fail or stay away are found by Agreement (agreement.h) and by NCCL itself
// (ncclCommGetAsyncError), and told to whoever waits for the device: the wait ends with an Error that names the
// collective, its label and the rank, after ncclCommAbort has freed the device. Every rank comes to that by itself.
//
// Sums: NCCL forms the sum over the ranks in an order of its own, equal on all ranks; with `accumulate` it forms it in
// scratch memory and a kernel then adds it to the shard. So bits equal the host backends' only where sums are exact.
//
// Order of several communicators (NcclOptions::one_channel): NCCL can order the launches of several communicators of
// one GPU by the host's calls since 2.26, when NCCL_LAUNCH_ORDER_IMPLICIT is 1, which is set here unless the
// environment says otherwise. Then split() and duplicate() give channels that overlap. Otherwise duplicates share one
// NCCL communicator, and each call waits on its stream for the one before.
//
// Traffic is counted as a ring sends it: of n elements, rank r sends (W-1)/W n in a reduce-scatter or all-gather, twice
// that in an all-reduce, and n in a broadcast unless its neighbour is the root.
//
// Threads: one host thread per rank makes all calls, as Communicator demands, and waits for the streams.
#pragma once

#include <memory>

#include "dist/communicator.h"

namespace trencadis {

struct NcclOptions {
  CommOptions comm;  // timeout_seconds; the rest concerns host memory
  // All duplicates share one NCCL communicator, as they do without implicit launch order.
  bool one_channel = false;
  // Use NCCL also where a group has one rank, for tests on a machine with one GPU.
  bool also_alone = false;
};

// Collective over `host`, which carries NCCL's id and what ranks tell each other about their calls: dist/mpi's world,
// or dist/thread's in tests. The ranks are on different GPUs, each its context's, current in the calling thread; throws
// Error on all of them, naming ranks and GPU, when two share one. The context outlives the communicator.
std::unique_ptr<Communicator> make_nccl_communicator(Context& context, Communicator& host, NcclOptions options = {},
                                                     const AbortFlag* abort = nullptr);

// The device of a process: local_rank (among the processes of its host) modulo the number of devices. Throws Error when
// there is no device.
int device_of_rank(int local_rank);

}  // namespace trencadis
