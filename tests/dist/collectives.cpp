// Every collective against a serial computation in rank order, to the bit: types, sizes, cuts, aliases, delays.
#include "ranks.h"

namespace trencadis::test {

namespace {

const CollectiveLabel kLabel{"test", Traffic::training};

// The definition that the communicators must meet, written without their help.
template <typename T>
T combine(T a, T b, ReduceOp op) {
  if (op == ReduceOp::max)
    return static_cast<double>(static_cast<float>(b)) > static_cast<double>(static_cast<float>(a)) ? b : a;
  return a + b;
}
template <>
double combine(double a, double b, ReduceOp op) {
  return op == ReduceOp::max ? std::max(a, b) : a + b;
}
template <>
int64_t combine(int64_t a, int64_t b, ReduceOp op) {
  return op == ReduceOp::max ? std::max(a, b) : a + b;
}
template <>
bf16 combine(bf16 a, bf16 b, ReduceOp op) {
  const float x = static_cast<float>(a), y = static_cast<float>(b);
  return bf16(op == ReduceOp::max ? std::max(x, y) : x + y);
}

template <typename T>
T reduced(int ranks, int64_t i, ReduceOp op, uint64_t seed = 0) {
  T sum = value<T>(0, i, seed);
  for (int r = 1; r < ranks; ++r) sum = combine(sum, value<T>(r, i, seed), op);
  return sum;
}

template <typename T>
void check_all_reduce(Communicator& comm, Stream& stream, int64_t n, ReduceOp op) {
  Array data(dtype_of<T>(), n), want(dtype_of<T>(), n);
  fill<T>(data.view(), comm.rank());
  for (int64_t i = 0; i < n; ++i) want.as<T>()[i] = reduced<T>(comm.size(), i, op);
  comm.all_reduce(data.view(), op, stream, kLabel);
  stream.synchronize();
  CHECK(same_bits(data.view(), want.view()));
}

template <typename T>
void check_reduce_scatter(Communicator& comm, Stream& stream, int64_t n, bool accumulate, bool in_place) {
  Array in(dtype_of<T>(), n * comm.size()), before(dtype_of<T>(), n * comm.size());
  Array apart(dtype_of<T>(), n), want(dtype_of<T>(), n);
  fill<T>(in.view(), comm.rank());
  fill<T>(before.view(), comm.rank());
  const int64_t first = comm.rank() * n;
  const View shard = in_place ? in.view().slice(first, n) : apart.view();
  if (accumulate) fill<T>(shard, 99);
  for (int64_t i = 0; i < n; ++i) {
    T sum = reduced<T>(comm.size(), first + i, ReduceOp::sum);
    if (accumulate && accumulates_the_sum()) {
      sum = combine(value<T>(99, i), sum, ReduceOp::sum);
    } else if (accumulate) {
      sum = value<T>(99, i);
      for (int r = 0; r < comm.size(); ++r) sum = combine(sum, value<T>(r, first + i), ReduceOp::sum);
    }
    want.as<T>()[i] = sum;
  }
  comm.reduce_scatter(in.view(), shard, accumulate, stream, kLabel);
  stream.synchronize();
  CHECK(same_bits(shard, want.view()));
  for (int r = 0; r < comm.size(); ++r)
    if (!in_place || r != comm.rank()) CHECK(same_bits(in.view().slice(r * n, n), before.view().slice(r * n, n)));
}

template <typename T>
void check_all_gather(Communicator& comm, Stream& stream, int64_t n, bool in_place) {
  Array out(dtype_of<T>(), n * comm.size()), want(dtype_of<T>(), n * comm.size()), apart(dtype_of<T>(), n);
  const View shard = in_place ? out.view().slice(comm.rank() * n, n) : apart.view();
  fill<T>(shard, comm.rank());
  for (int r = 0; r < comm.size(); ++r) fill<T>(want.view().slice(r * n, n), r);
  comm.all_gather(shard, out.view(), stream, kLabel);
  stream.synchronize();
  CHECK(same_bits(out.view(), want.view()));
}

template <typename T>
void check_broadcast(Communicator& comm, Stream& stream, int64_t n, int root) {
  Array data(dtype_of<T>(), n), want(dtype_of<T>(), n);
  fill<T>(data.view(), comm.rank());
  fill<T>(want.view(), root);
  comm.broadcast(data.view(), root, stream, kLabel);
  stream.synchronize();
  CHECK(same_bits(data.view(), want.view()));
}

// Around one chunk, several chunks, and the step from small to large all_reduce (4096 f32, 2048 f64, 8192 bf16).
const std::vector<int64_t> kSizes = {0, 1, 3, 50, 51, 1237, 2049, 4096, 4097, 8193};

template <typename T>
void check_everything(Communicator& comm, const std::vector<int64_t>& sizes) {
  WorkerStream stream("comm");
  for (const int64_t n : sizes) {
    CAPTURE(n);
    if constexpr (!std::is_same_v<T, int32_t>) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) check_all_reduce<T>(comm, stream, n, op);
      check_reduce_scatter<T>(comm, stream, n, false, false);
      check_reduce_scatter<T>(comm, stream, n, true, false);
      check_reduce_scatter<T>(comm, stream, n, false, true);
    }
    check_all_gather<T>(comm, stream, n, false);
    check_all_gather<T>(comm, stream, n, true);
    for (int root = 0; root < comm.size(); ++root) check_broadcast<T>(comm, stream, n, root);
  }
}

}  // namespace

TEST_CASE("every collective, type and size equals the serial computation in rank order") {
  on_ranks(cut_small(), [](Communicator& comm) {
    check_everything<float>(comm, kSizes);
    check_everything<double>(comm, kSizes);
    check_everything<int64_t>(comm, kSizes);
    check_everything<bf16>(comm, kSizes);
    check_everything<int32_t>(comm, kSizes);
  });
}

TEST_CASE("the default cut: chunks of 256 KiB") {
  on_ranks({}, [](Communicator& comm) {
    WorkerStream stream("comm");
    check_all_reduce<float>(comm, stream, 2 * 65536 + 5, ReduceOp::sum);
    check_reduce_scatter<float>(comm, stream, 65536 + 1, false, true);
    check_all_gather<double>(comm, stream, 65536 + 1, false);
  });
}

TEST_CASE("delays change no bit") {
  CommOptions options = cut_small();
  options.delay_us = 1000;
  options.delay_seed = 5;
  on_ranks(options, [](Communicator& comm) { check_everything<float>(comm, {3, 4097}); });
}

// With 1, 1e8, -1e8, 1, ... any other order gives another sum: 1 + 1e8 is 1e8 in f32.
TEST_CASE("sums run in rank order, from the left, onto what is there") {
  on_ranks(cut_small(), [](Communicator& comm) {
    const float by_rank[] = {1e8f, -1e8f, 1, 1e8f};
    const float alone[] = {1e8f, 0, 1, 1e8f};     // x0 + x1 + ...
    const float onto_one[] = {1e8f, 0, 1, 1e8f};  // ((1 + x0) + x1) + ...: the first 1 is lost
    const float one_and_sum[] = {1e8f, 1, 2, 1e8f};
    const float mine = by_rank[comm.rank()];
    const auto last = static_cast<size_t>(comm.size() - 1);
    WorkerStream stream("comm");
    for (const int64_t n : {5, 5000}) {
      Array data(DType::f32, n), in(DType::f32, n * comm.size()), shard(DType::f32, n);
      std::fill_n(data.as<float>(), n, mine);
      std::fill_n(in.as<float>(), n * comm.size(), mine);
      std::fill_n(shard.as<float>(), n, 1.0f);
      comm.all_reduce(data.view(), ReduceOp::sum, stream, kLabel);
      comm.reduce_scatter(in.view(), shard.view(), true, stream, kLabel);
      stream.synchronize();
      CHECK(data.as<float>()[n - 1] == alone[last]);
      CHECK(shard.as<float>()[n - 1] == (accumulates_the_sum() ? one_and_sum : onto_one)[last]);
    }
  });
}

TEST_CASE("a maximum carries NaN from any rank to all") {
  on_ranks({}, [](Communicator& comm) {
    WorkerStream stream("comm");
    for (int bad = 0; bad < comm.size(); ++bad) {
      float x[] = {comm.rank() == bad ? NAN : 1.0f, -2.0f - static_cast<float>(comm.rank())};
      comm.all_reduce(View(x, 2), ReduceOp::max, stream, kLabel);
      stream.synchronize();
      CHECK(x[0] != x[0]);
      CHECK(x[1] == -2.0f);
    }
  });
}

TEST_CASE("two communicators work at once on two streams") {
  CommOptions options = cut_small();
  options.delay_us = 200;
  on_ranks(options, [](Communicator& comm) {
    const auto other = comm.duplicate();
    WorkerStream a("a"), b("b");
    const int64_t n = 3000;
    for (int round = 0; round < 5; ++round) {
      Array x(DType::f32, n), y(DType::f32, n * comm.size()), part(DType::f32, n);
      const auto seed = static_cast<uint64_t>(round);
      fill<float>(x.view(), comm.rank(), 0, seed);
      fill<float>(part.view(), comm.rank(), 0, seed);
      // The ranks issue them in different orders: only the order within a communicator matters.
      if (comm.rank() % 2) comm.all_reduce(x.view(), ReduceOp::sum, a, kLabel);
      other->all_gather(part.view(), y.view(), b, kLabel);
      if (comm.rank() % 2 == 0) comm.all_reduce(x.view(), ReduceOp::sum, a, kLabel);
      a.synchronize();
      b.synchronize();
      bool right = true;
      for (int64_t i = 0; i < n; ++i)
        right = right && x.as<float>()[i] == reduced<float>(comm.size(), i, ReduceOp::sum, seed);
      for (int r = 0; r < comm.size(); ++r) right = right && y.as<float>()[r * n + 7] == value<float>(r, 7, seed);
      CHECK(right);
    }
  });
}

TEST_CASE("a barrier on the host comes after the collectives on the stream") {
  CommOptions options;
  options.delay_us = 20000;
  on_ranks(options, [](Communicator& comm) {
    WorkerStream stream("comm");
    int64_t x = 1;
    comm.all_reduce(View(&x, 1), ReduceOp::sum, stream, kLabel);
    if (comm.size() == 1) stream.synchronize();
    comm.barrier({"here"});
    CHECK(x == comm.size());
    stream.synchronize();
  });
}

TEST_CASE("split: by color, ordered by key") {
  on_ranks(cut_small(), [](Communicator& comm) {
    const int color = comm.rank() % 2;
    const auto part = comm.split(color, -comm.rank());
    const int members = (comm.size() + (color == 0 ? 1 : 0)) / 2;
    CHECK(part->size() == members);
    CHECK(part->rank() == members - 1 - comm.rank() / 2);
    WorkerStream stream("comm");
    Array out(DType::i64, members);
    int64_t me = comm.rank(), sum = comm.rank();
    part->all_gather(ConstView(&me, 1), out.view(), stream, kLabel);
    comm.all_reduce(View(&sum, 1), ReduceOp::sum, stream, kLabel);
    stream.synchronize();
    for (int r = 0; r < members; ++r) CHECK(out.as<int64_t>()[r] == 2 * (members - 1 - r) + color);
    CHECK(sum == comm.size() * (comm.size() - 1) / 2);
    const auto same = part->duplicate();
    CHECK(same->size() == part->size());
    CHECK(same->rank() == part->rank());
  });
}

TEST_CASE("traffic is counted exactly, by class and kind, and a rank alone counts nothing") {
  on_ranks(cut_small(), [](Communicator& comm) {
    const int64_t W = comm.size(), others = W - 1, n = 12 * 1000;  // divides by 4 W
    WorkerStream stream("comm");
    Array full(DType::f32, n), shard(DType::f32, n / W), odd(DType::f32, 9001);
    for (const Array* a : {&full, &shard, &odd}) fill<float>(const_cast<Array*>(a)->view(), comm.rank());
    comm.reduce_scatter(full.view(), shard.view(), false, stream, {"r", Traffic::training});
    comm.reduce_scatter(full.view(), shard.view(), true, stream, {"r", Traffic::training});
    comm.all_gather(shard.view(), full.view(), stream, {"g", Traffic::training});
    comm.all_reduce(full.view(), ReduceOp::sum, stream, {"a", Traffic::training});
    comm.all_reduce(odd.view(), ReduceOp::sum, stream, {"odd", Traffic::other});
    int64_t words[3] = {};
    comm.all_reduce(View(words, 3), ReduceOp::sum, stream, {"tokens", Traffic::control});
    comm.broadcast(odd.view(), static_cast<int>(W - 1), stream, {"b", Traffic::other});
    stream.synchronize();
    comm.barrier({"end", Traffic::other});

    const CommCounters counters = comm.counters();
    const auto check = [&](Traffic traffic, CollectiveKind kind, int64_t calls, int64_t elements, int64_t size) {
      const auto& count = counters.at(traffic, kind);
      CHECK(count.calls == (W == 1 ? 0 : calls));
      CHECK(count.elements_sent == elements);
      CHECK(count.bytes_sent == elements * size);
    };
    check(Traffic::training, CollectiveKind::reduce_scatter, 2, 2 * others * n / W, 4);
    check(Traffic::training, CollectiveKind::all_gather, 1, others * n / W, 4);
    check(Traffic::training, CollectiveKind::all_reduce, 1, 2 * others * n / W, 4);
    check(Traffic::control, CollectiveKind::all_reduce, 1, others * 3, 8);
    // 9001 elements in pieces of 4504 (W = 2), 3004, 2252; the last is shorter. Each piece but the own goes out once,
    // then the own one to all others.
    const int64_t each = ((9001 + W - 1) / W + 3) / 4 * 4;
    const int64_t own = comm.rank() == W - 1 ? 9001 - others * each : each;
    check(Traffic::other, CollectiveKind::all_reduce, 1, W == 1 ? 0 : 9001 - own + others * own, 4);
    check(Traffic::other, CollectiveKind::broadcast, 1, comm.rank() == W - 1 ? others * 9001 : 0, 4);
    check(Traffic::other, CollectiveKind::barrier, 1, 0, 1);
    check(Traffic::control, CollectiveKind::barrier, 0, 0, 1);
    CHECK(comm.duplicate()->counters().at(Traffic::training, CollectiveKind::all_reduce).calls == 0);
  });
}

}  // namespace trencadis::test
