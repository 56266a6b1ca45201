// What only NCCL's communicator promises: calls that do not block, order among communicators and streams, traffic as a
// ring sends it, errors that reach every rank; and the staged communicator, on one GPU for all ranks.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "../ranks.h"
#include "dist/nccl/agreement.h"
#include "dist/nccl/staged_communicator.h"
#include "late_host.h"
#include "on_device.h"
#include "runtime/cuda/streams.h"
#include "sim_ranks.h"

namespace trencadis::test {

namespace {

using Block = std::shared_ptr<Storage>;

Block block_of(Context& context, const std::vector<float>& values) {
  auto block = Storage::create(context, static_cast<int64_t>(values.size()) * 4, MemoryCategory::activation, "block");
  context.copy_from_host(View(block->data(), DType::f32, block->bytes() / 4), values.data());
  return block;
}
View view(const Block& block) { return {block->data(), DType::f32, block->bytes() / 4}; }
std::vector<float> values(Context& context, const Block& block) {
  std::vector<float> host(static_cast<size_t>(block->bytes() / 4));
  context.copy_to_host(host.data(), view(block));
  return host;
}

// The texts of the errors that the ranks' bodies throw, by rank.
std::vector<std::string> errors_of(int size, const NcclOptions& options, const std::function<void(SimRank&)>& body,
                                   const AbortFlag* abort = nullptr) {
  std::vector<std::string> texts(static_cast<size_t>(size));
  const auto together = make_thread_communicators(size);
  on_sim_ranks(
      size, options,
      [&](SimRank& rank) {
        try {
          body(rank);
        } catch (const Error& error) {
          texts[static_cast<size_t>(rank.comm.rank())] = error.what();
        }
        if (size > 1) together[static_cast<size_t>(rank.comm.rank())]->barrier({"end of a test"});
      },
      abort);
  return texts;
}

NcclOptions with_timeout(double seconds) {
  NcclOptions options;
  options.comm.timeout_seconds = seconds;
  return options;
}

}  // namespace

TEST_CASE("nccl: a call returns before the other ranks have come, and orders its stream") {
  on_sim_ranks(2, with_timeout(30), [](SimRank& rank) {
    Context& context = rank.context;
    const auto comm_stream = context.make_stream("comm");
    const Block x = block_of(context, {1, 2}), y = block_of(context, {0, 0});
    comm_stream->wait(context.compute_stream().record());
    if (rank.comm.rank() == 1) rank.host.barrier({"rank 0 has called"});
    rank.comm.all_reduce(view(x), ReduceOp::sum, *comm_stream, {"x"});
    rank.comm.all_reduce(view(x), ReduceOp::sum, *comm_stream, {"x again"});
    if (rank.comm.rank() == 0) rank.host.barrier({"rank 0 has called"});
    context.compute_stream().wait(comm_stream->record());
    context.kernels().add(view(y), view(x));
    CHECK(values(context, y) == std::vector<float>{4, 8});
  });
}

TEST_CASE("nccl: traffic is what a ring sends, by class and kind, and a rank alone sends nothing") {
  for (int size = 1; size <= 3; ++size)
    on_sim_ranks(size, {}, [&](SimRank& rank) {
      const int64_t W = size, n = 12;
      const Block full = block_of(rank.context, std::vector<float>(static_cast<size_t>(n * W)));
      const Block shard = block_of(rank.context, std::vector<float>(static_cast<size_t>(n)));
      Stream& stream = rank.context.compute_stream();
      rank.comm.reduce_scatter(view(full), view(shard), true, stream, {"r", Traffic::training});
      rank.comm.all_gather(view(shard), view(full), stream, {"g", Traffic::training});
      rank.comm.all_reduce(view(full), ReduceOp::sum, stream, {"a", Traffic::training});
      rank.comm.all_reduce(view(full).slice(0, 1), ReduceOp::max, stream, {"norm", Traffic::control});
      rank.comm.broadcast(view(full), 0, stream, {"b", Traffic::other});
      stream.synchronize();
      const CommCounters counters = rank.comm.counters();
      const auto sent = [&](Traffic traffic, CollectiveKind kind) { return counters.at(traffic, kind).elements_sent; };
      CHECK(sent(Traffic::training, CollectiveKind::reduce_scatter) == (W - 1) * n);
      CHECK(sent(Traffic::training, CollectiveKind::all_gather) == (W - 1) * n);
      CHECK(sent(Traffic::training, CollectiveKind::all_reduce) == 2 * (W - 1) * n);
      CHECK(counters.at(Traffic::training, CollectiveKind::all_reduce).bytes_sent == 8 * (W - 1) * n);
      CHECK(counters.at(Traffic::control, CollectiveKind::all_reduce).calls == (W > 1 ? 1 : 0));
      CHECK(sent(Traffic::other, CollectiveKind::broadcast) == (W > 1 && rank.comm.rank() != W - 1 ? n * W : 0));
      // One element is one piece: all ranks together send it 2 (W - 1) times.
      int64_t one = sent(Traffic::control, CollectiveKind::all_reduce);
      if (W > 1) {
        InlineStream inline_stream("host");
        rank.host.all_reduce(View(&one, 1), ReduceOp::sum, inline_stream, {"sum"});
      }
      CHECK(one == 2 * (W - 1));
    });
}

TEST_CASE("nccl: a group of one rank uses NCCL on request") {
  NcclOptions options;
  options.also_alone = true;
  on_sim_ranks(1, options, [](SimRank& rank) {
    const Block x = block_of(rank.context, {3, 4}), sum = block_of(rank.context, {1, 1});
    Stream& stream = rank.context.compute_stream();
    const int64_t before = cudasim::operations_run();
    rank.comm.all_reduce(view(x), ReduceOp::sum, stream, {"x"});
    stream.synchronize();
    CHECK(cudasim::operations_run() > before);
    rank.comm.reduce_scatter(view(x), view(sum), true, stream, {"r"});
    CHECK(values(rank.context, sum) == std::vector<float>{4, 5});
    CHECK(rank.comm.counters().at(Traffic::other, CollectiveKind::all_reduce).calls == 0);
  });
}

TEST_CASE("nccl: implicit launch order is asked for, and duplicates work on two streams at once") {
  for (const bool one_channel : {false, true}) {
    CAPTURE(one_channel);
    NcclOptions options = with_timeout(30);
    options.one_channel = one_channel;
    on_sim_ranks(3, options, [](SimRank& rank) {
      const auto gathers = rank.comm.duplicate(), sums = rank.comm.duplicate();
      const auto a = rank.context.make_stream("a"), b = rank.context.make_stream("b");
      for (int round = 0; round < 4; ++round) {
        const Block x = block_of(rank.context, {1}), y = block_of(rank.context, {2, 2, 2});
        const Block own = block_of(rank.context, {static_cast<float>(rank.comm.rank())});
        const Event there = rank.context.compute_stream().record();
        a->wait(there);
        b->wait(there);
        sums->all_reduce(view(x), ReduceOp::sum, *a, {"x"});
        gathers->all_gather(view(own), view(y), *b, {"y"});
        a->synchronize();
        b->synchronize();
        CHECK(values(rank.context, x).at(0) == 3);
        CHECK(values(rank.context, y) == std::vector<float>{0, 1, 2});
      }
    });
    CHECK(std::string(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT")) == "1");
  }
}

TEST_CASE("nccl: other labels, which NCCL does not see, are an error at the next wait for the ranks") {
  const std::string start(200, 'x');
  for (const std::string& label : {std::string("gradients of h."), start}) {
    const auto texts = errors_of(3, with_timeout(30), [&](SimRank& rank) {
      const Block x = block_of(rank.context, {1});
      Stream& stream = rank.context.compute_stream();
      rank.comm.all_reduce(view(x), ReduceOp::sum, stream, {label + (rank.comm.rank() == 2 ? "2" : "1")});
      stream.synchronize();
      rank.comm.barrier({"end of a step"});
    });
    for (const std::string& text : texts) {
      CAPTURE(text);
      CHECK(contains(text, "ranks 0 and 1: all_reduce \"" + label.substr(0, 71 - 1)));
      CHECK(contains(text, "rank 2: all_reduce"));
    }
  }
}

TEST_CASE("nccl: another order of communicators is an error that names both calls") {
  const auto texts = errors_of(2, with_timeout(30), [](SimRank& rank) {
    const auto other = rank.comm.duplicate();
    const auto a = rank.context.make_stream("a"), b = rank.context.make_stream("b");
    const Block x = block_of(rank.context, {1}), y = block_of(rank.context, {2});
    rank.context.compute_stream().synchronize();
    const bool first = rank.comm.rank() == 0;
    if (first) rank.comm.all_reduce(view(x), ReduceOp::sum, *a, {"x"});
    other->all_reduce(view(y), ReduceOp::sum, *b, {"y"});
    if (!first) rank.comm.all_reduce(view(x), ReduceOp::sum, *a, {"x"});
    a->synchronize();
    b->synchronize();
  });
  for (const std::string& text : texts) {
    CAPTURE(text);
    CHECK(contains(text, "rank 0: all_reduce \"x\""));
    CHECK(contains(text, "rank 1: all_reduce \"channel 1: y\""));
  }
}

TEST_CASE("nccl: a rank that fails elsewhere ends the others' waits with its reason") {
  const Stopwatch watch;
  const auto texts = errors_of(3, with_timeout(60), [](SimRank& rank) {
    const auto comm = rank.comm.duplicate();
    const Block x = block_of(rank.context, {1});
    Stream& stream = rank.context.compute_stream();
    comm->all_reduce(view(x), ReduceOp::sum, stream, {"first"});
    stream.synchronize();
    if (rank.comm.rank() == 2) throw Error("disk full");
    comm->all_reduce(view(x), ReduceOp::sum, stream, {"gradients of h.3"});
    stream.synchronize();
  });
  CHECK(watch.seconds() < 30);
  CHECK(texts[2] == "disk full");
  for (int rank = 0; rank < 2; ++rank) {
    const std::string& text = texts[static_cast<size_t>(rank)];
    CAPTURE(text);
    CHECK(contains(text, "an error elsewhere in rank 2"));
  }
}

TEST_CASE("nccl: a device that does not come to a collective is named after the timeout") {
  const auto texts = errors_of(2, with_timeout(0.5), [](SimRank& rank) {
    const auto comm = rank.comm.duplicate();
    const Block x = block_of(rank.context, {1});
    const auto stream = rank.context.make_stream("comm");
    rank.context.compute_stream().synchronize();
    // Rank 1's collective stands behind a meeting to which nobody comes: all ranks have called it, one device hangs.
    const auto never = std::make_shared<cudasim::Rendezvous>("a kernel that hangs", 2, [](auto&) {});
    if (rank.comm.rank() == 1) cudasim::enqueue(CudaStream::of(*stream).handle(), never, 0);
    comm->all_reduce(view(x), ReduceOp::sum, *stream, {"gradients of h.3"});
    const std::string text = error_of([&] { stream->synchronize(); });
    if (rank.comm.rank() == 1) cudasim::withdraw(*never, 0);
    throw Error(text);
  });
  bool named = false;
  for (const std::string& text : texts) {
    CAPTURE(text);
    CHECK(contains(text, "gradients of h.3"));
    CHECK(contains(text, "no progress for "));
    named = named || contains(text, "where all ranks have called it");
  }
  CHECK(named);
}

TEST_CASE("nccl: two ranks on one GPU are told so, with the remedy") {
  const auto hosts = make_thread_communicators(2);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      CudaOptions cuda;
      cuda.device = 4;
      Context context(make_cuda_backend(cuda));
      const std::string text = error_of([&] { make_nccl_communicator(context, *hosts[r]); });
      CAPTURE(text);
      CHECK(contains(text, "ranks 0 and 1 are on one GPU"));
      CHECK(contains(text, "make_staged_communicator"));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("nccl: groups start, split and work over a host whose last messages leave late") {
  on_sim_ranks(LateHost::make(3, /*patience_seconds=*/20), with_timeout(20), [](SimRank& rank) {
    const auto twin = rank.comm.duplicate();
    const auto part = rank.comm.split(rank.comm.rank() == 1, rank.comm.rank());  // ranks 0 and 2, and rank 1 alone
    const Block x = block_of(rank.context, {1}), y = block_of(rank.context, {static_cast<float>(rank.comm.rank())});
    Stream& stream = rank.context.compute_stream();
    twin->all_reduce(view(x), ReduceOp::sum, stream, {"x"});
    part->all_reduce(view(y), ReduceOp::sum, stream, {"y"});
    CHECK(values(rank.context, x).at(0) == 3);
    CHECK(values(rank.context, y).at(0) == (rank.comm.rank() == 1 ? 1 : 2));
    CHECK(part->size() == (rank.comm.rank() == 1 ? 1 : 2));
  });
}

TEST_CASE("nccl: notes reach every rank, one after the other, and a rank that fails ends the exchange") {
  const auto hosts = make_thread_communicators(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      Agreement agreement(hosts[static_cast<size_t>(r)]->duplicate(), {}, nullptr);
      for (int64_t round = 0; round < 20; ++round) {
        Agreement::Note own{};
        own.front() = 100 * round + r;
        own.back() = -own.front();
        const auto notes = agreement.exchange("notes", own);
        REQUIRE(notes.size() == 3);
        for (int64_t from = 0; from < 3; ++from) {
          CHECK(notes[static_cast<size_t>(from)].front() == 100 * round + from);
          CHECK(notes[static_cast<size_t>(from)].back() == -100 * round - from);
        }
      }
      const std::string text = error_of([&] {
        if (r == 1) agreement.fail("no GPU");
        agreement.exchange("last notes", {});
      });
      CAPTURE(text);
      CHECK(contains(text, r == 1 ? "no GPU" : "rank 1 failed: no GPU"));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("nccl: the device of a local rank") {
  CHECK(device_of_rank(0) == 0);
  CHECK(device_of_rank(7) == 7);
  CHECK(device_of_rank(9) == 1);
}

TEST_CASE("nccl: sums that are accumulated pass through scratch memory that the tracker sees") {
  on_sim_ranks(2, {}, [](SimRank& rank) {
    const auto live = [&] { return rank.context.memory().live()[static_cast<size_t>(MemoryCategory::communication)]; };
    const auto comm = rank.comm.duplicate();
    const Block in = block_of(rank.context, std::vector<float>(200, 1)),
                out = block_of(rank.context, std::vector<float>(100, 5));
    Stream& stream = rank.context.compute_stream();
    comm->reduce_scatter(view(in), view(out), false, stream, {"r"});
    CHECK(live() == 0);
    comm->reduce_scatter(view(in).slice(0, 20), view(out).slice(0, 10), true, stream, {"r"});
    CHECK(live() == 40);
    comm->reduce_scatter(view(in), view(out), true, stream, {"r"});
    CHECK(live() == 400);
    CHECK(values(rank.context, out).at(0) == 6);
    CHECK(values(rank.context, out).at(99) == 4);
  });
}

TEST_CASE("staged: ranks that share one GPU") {
  const auto hosts = make_thread_communicators(3);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      Context context(make_cuda_backend({}));  // device 0, all of them
      const auto comm = make_staged_communicator(context, hosts[r]->duplicate(), 1024);
      const auto W = static_cast<size_t>(comm->size());
      std::vector<float> mine(500 * W);
      for (size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<float>(i * (r + 1));
      const Block in = block_of(context, mine), shard = block_of(context, std::vector<float>(500, 1));
      const auto stream = context.make_stream("comm");
      stream->wait(context.compute_stream().record());
      comm->reduce_scatter(view(in), view(shard), true, *stream, {"r", Traffic::training});
      comm->all_gather(view(shard), view(in), *stream, {"g", Traffic::training});
      context.compute_stream().wait(stream->record());
      const std::vector<float> got = values(context, in);
      bool right = true;
      for (size_t i = 0; i < got.size(); ++i) right = right && got[i] == static_cast<float>(6 * i + 1);
      CHECK(right);
      const CommCounters counters = comm->counters();
      CHECK(counters.at(Traffic::training, CollectiveKind::reduce_scatter).calls == 1);
      CHECK(counters.at(Traffic::training, CollectiveKind::reduce_scatter).elements_sent == 1000);
      CHECK(counters.at(Traffic::training, CollectiveKind::all_gather).elements_sent == 1000);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace trencadis::test
