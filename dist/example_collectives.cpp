// Three ranks, as threads of this program, sum their gradients: a reduce-scatter leaves each rank a third of the sum,
// an all-gather puts the thirds together. Then rank 2 makes a mistake. Build and run: ninja example_collectives
#include <fmt/format.h>

#include <thread>
#include <vector>

#include "dist/thread/thread_communicator.h"
#include "runtime/host_streams.h"

using namespace trencadis;

// What rank r of W does; returns what it has to say.
std::string train(Communicator& comm) {
  const int r = comm.rank(), W = comm.size();
  WorkerStream stream("comm");  // a thread that runs the collectives beside this one

  // Six gradients: 1 2 3 4 5 6 on rank 0, ten times that on rank 1, a hundred times on rank 2.
  std::vector<float> gradients, shard(2), all(6);
  for (int i = 1; i <= 6; ++i) gradients.push_back(static_cast<float>(i * (r == 0 ? 1 : r == 1 ? 10 : 100)));
  const View full(gradients.data(), 6), mine(shard.data(), 2), gathered(all.data(), 6);

  comm.reduce_scatter(full, mine, false, stream, {"gradients of h.0", Traffic::training});
  comm.all_gather(mine, gathered, stream, {"parameters of h.0", Traffic::training});
  stream.synchronize();  // a real program computes here, and waits for an event where it needs the result
  std::string text =
      fmt::format("rank {} of {}: my shard {}, gathered {}\n", r, W, fmt::join(shard, " "), fmt::join(all, " "));
  const CommCounters counters = comm.counters();
  text += fmt::format("  sent {} + {} elements\n",
                      counters.at(Traffic::training, CollectiveKind::reduce_scatter).elements_sent,
                      counters.at(Traffic::training, CollectiveKind::all_gather).elements_sent);

  try {
    comm.all_reduce(full, ReduceOp::sum, stream, {r == 2 ? "gradients of h.2" : "gradients of h.1"});
    stream.synchronize();
  } catch (const Error& error) {
    text += fmt::format("  error: {}\n", error.what());
  }
  return text;
}

int main() {
  const auto ranks = make_thread_communicators(3);
  std::vector<std::string> said(ranks.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r) threads.emplace_back([&, r] { said[r] = train(*ranks[r]); });
  for (std::thread& thread : threads) thread.join();
  fmt::print("{}", fmt::join(said, ""));
}
