// Ranks that disagree, stay away, are told to stop or go: always an error that names them, never a hang.
#include <thread>

#include "ranks.h"

namespace trencadis::test {

namespace {

using Issue = std::function<void(Communicator&, Stream&, View data)>;

// All ranks but the last call `most`, the last one `odd`: every rank must get the same kind of error, soon, with
// `parts` in its text; data stays as it was; and the communicator stays failed.
void check_mismatch(const Issue& most, const Issue& odd, const std::vector<std::string>& parts) {
  on_ranks(cut_small(), [&](Communicator& comm) {
    if (comm.size() == 1) return;
    const bool last = comm.rank() == comm.size() - 1;
    Array data(DType::f32, 12 * 1000), before(DType::f32, 12 * 1000);
    fill<float>(data.view(), comm.rank());
    fill<float>(before.view(), comm.rank());
    {
      WorkerStream stream("comm");
      const Stopwatch watch;
      const std::string text = error_of([&] {
        (last ? odd : most)(comm, stream, data.view());
        stream.synchronize();
      });
      CHECK(watch.seconds() < 2);
      CAPTURE(text);
      CHECK(contains(text, "disagree"));
      CHECK(contains(text, "rank 0") != (comm.size() > 2));  // "ranks 0 and 1" of three
      CHECK(contains(text, fmt::format("rank {}: ", comm.size() - 1)));
      for (const std::string& part : parts) CHECK(contains(text, part));
    }
    CHECK(same_bits(data.view(), before.view()));
    WorkerStream stream("comm");
    const std::string text = error_of([&] {
      comm.all_reduce(data.view(), ReduceOp::sum, stream, {"later"});
      stream.synchronize();
    });
    CHECK(contains(text, "an earlier collective failed"));
  });
}

Issue all_reduce_of(int64_t n, std::string label, ReduceOp op = ReduceOp::sum) {
  return [=](Communicator& comm, Stream& stream, View data) { comm.all_reduce(data.slice(0, n), op, stream, {label}); };
}

}  // namespace

TEST_CASE("other label: an error that names both units and the ranks, on all ranks") {
  check_mismatch(all_reduce_of(100, "gradients of h.1"), all_reduce_of(100, "gradients of h.2"),
                 {"\"gradients of h.1\"", "\"gradients of h.2\""});
}

TEST_CASE("labels that differ only far behind are different") {
  const std::string start(200, 'x');
  check_mismatch(all_reduce_of(100, start + "1"), all_reduce_of(100, start + "2"), {"xxx"});
}

TEST_CASE("other count: small, large and one of each") {
  check_mismatch(all_reduce_of(100, "u"), all_reduce_of(101, "u"), {"100 f32", "101 f32"});
  check_mismatch(all_reduce_of(9000, "u"), all_reduce_of(12000, "u"), {"9000 f32", "12000 f32"});
  check_mismatch(all_reduce_of(12000, "u"), all_reduce_of(1, "u"), {"12000 f32", "1 f32"});
  check_mismatch(all_reduce_of(12000, "u"), all_reduce_of(0, "u"), {"12000 f32", "0 f32"});
}

TEST_CASE("other operation, root and kind") {
  check_mismatch(all_reduce_of(8, "u"), all_reduce_of(8, "u", ReduceOp::max), {"sum", "max"});
  const auto broadcast_from = [](int root) -> Issue {
    return [=](Communicator& comm, Stream& stream, View data) { comm.broadcast(data, root, stream, {"u"}); };
  };
  check_mismatch(broadcast_from(0), broadcast_from(1), {"root 0", "root 1"});
  check_mismatch(
      [](Communicator& comm, Stream& stream, View data) {
        const int64_t n = data.size / comm.size();
        comm.all_gather(data.slice(comm.rank() * n, n), data, stream, {"gather h.0"});
      },
      [](Communicator& comm, Stream& stream, View data) {
        const int64_t n = data.size / comm.size();
        comm.reduce_scatter(data, data.slice(comm.rank() * n, n), false, stream, {"reduce h.0"});
      },
      {"all_gather \"gather h.0\"", "reduce_scatter \"reduce h.0\""});
  check_mismatch([](Communicator& comm, Stream&, View) { comm.barrier({"end"}); }, all_reduce_of(8, "u"),
                 {"barrier \"end\"", "all_reduce \"u\""});
}

TEST_CASE("a rank that never comes is named after the timeout") {
  CommOptions options;
  options.timeout_seconds = 0.5;
  on_ranks(options, [](Communicator& comm) {
    const int last = comm.size() - 1;
    if (last == 0 || comm.rank() == last) return;
    WorkerStream stream("comm");
    float x = 1;
    comm.all_reduce(View(&x, 1), ReduceOp::sum, stream, {"gradients of h.3"});
    const Stopwatch watch;
    const std::string text = error_of([&] { stream.synchronize(); });
    CAPTURE(text);
    CHECK(watch.seconds() < 2);
    CHECK(contains(text, fmt::format("rank {}", last)));
    CHECK(contains(text, "gradients of h.3"));
    CHECK(contains(text, "0.5 s"));
  });
}

TEST_CASE("the abort flag ends a wait, also a barrier's") {
  AbortFlag abort{false};
  on_ranks(
      {},
      [&](Communicator& comm) {
        const int last = comm.size() - 1;
        if (last == 0) return;
        std::thread setter([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          abort = true;
        });
        if (comm.rank() != last) {
          const Stopwatch watch;
          const std::string text = error_of([&] { comm.barrier({"saved"}); });
          CAPTURE(text);
          CHECK(watch.seconds() < 2);
          CHECK(contains(text, "abort was requested"));
          CHECK(contains(text, fmt::format("rank {}", last)));
        }
        setter.join();
      },
      &abort);
}

TEST_CASE("a communicator may be destroyed while its work is still queued") {
  on_ranks({}, [](Communicator& comm) {
    WorkerStream stream("comm");
    Array in(DType::f32, 8 * comm.size()), out(DType::f32, 8);
    stream.enqueue("sleep", [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
    comm.duplicate()->reduce_scatter(in.view(), out.view(), false, stream, {"late"});
    CHECK(contains(error_of([&] { stream.synchronize(); }), "destroyed"));
  });
}

TEST_CASE("a stream that failed before a collective fails the communicator, not the timeout") {
  on_ranks({}, [](Communicator& comm) {
    const auto own = comm.duplicate();
    Array in(DType::f32, 8 * comm.size()), out(DType::f32, 8);
    WorkerStream stream("comm");
    stream.enqueue("fail", [] { throw Error("disk full"); });
    own->reduce_scatter(in.view(), out.view(), false, stream, {"never"});
    CHECK(contains(error_of([&] { stream.synchronize(); }), "disk full"));
    WorkerStream other("other");
    own->reduce_scatter(in.view(), out.view(), false, other, {"next"});
    CHECK(contains(error_of([&] { other.synchronize(); }), "dropped"));
  });
}

TEST_CASE("arguments that one rank can check are checked at the call") {
  on_ranks({}, [](Communicator& comm) {
    WorkerStream stream("comm");
    const int64_t W = comm.size();
    Array in(DType::f32, 10 * W + 1), shard(DType::f32, 10), ids(DType::i32, 4), half(DType::bf16, 10);
    const View pieces = in.view().slice(0, 10 * W);
    const auto reduce = [&](View from, View to, bool accumulate) {
      return error_of([&] { comm.reduce_scatter(from, to, accumulate, stream, {"gradients of h.3"}); });
    };
    CHECK(contains(reduce(in.view(), shard.view(), false), "gradients of h.3"));
    CHECK(contains(reduce(pieces, half.view(), false), "bf16"));
    CHECK(contains(reduce(pieces, pieces.slice(10 * comm.rank(), 10), true), "accumulate"));
    if (W > 1) CHECK(contains(reduce(pieces, pieces.slice(5, 10), false), "overlaps"));
    CHECK(contains(error_of([&] { comm.all_reduce(ids.view(), ReduceOp::sum, stream, {"u"}); }), "i32"));
    CHECK(contains(error_of([&] { comm.broadcast(ids.view(), comm.size(), stream, {"u"}); }), "broadcast"));
    comm.barrier({"still in step"});
  });
}

}  // namespace trencadis::test
