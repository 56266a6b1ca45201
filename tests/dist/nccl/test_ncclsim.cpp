// NCCL on the simulator, through NCCL's own functions: what it computes, what it demands of its callers, and what it
// says.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "dist/ncclsim/launch_order.h"
#include "runtime/check.h"
#include "runtime/cudasim/executor.h"

#undef CHECK
#include <doctest/doctest.h>

using namespace trencadis;

namespace {

// One rank as NCCL sees it: a thread, a device, a stream.
struct Rank {
  int rank, ranks;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;

  // A block on the device that holds these values.
  template <typename T>
  T* put(const std::vector<T>& values) const {
    void* data = nullptr;
    REQUIRE(cudaMalloc(&data, values.size() * sizeof(T)) == cudaSuccess);
    REQUIRE(cudaMemcpyAsync(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice, stream) ==
            cudaSuccess);
    return static_cast<T*>(data);
  }
  template <typename T>
  std::vector<T> get(const T* data, size_t n) const {
    std::vector<T> values(n);
    REQUIRE(cudaMemcpyAsync(values.data(), data, n * sizeof(T), cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    return values;
  }
};

ncclComm_t join(const ncclUniqueId& id, int rank, int ranks, ncclResult_t expected = ncclSuccess) {
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  CHECK(ncclCommInitRankConfig(&comm, ranks, id, rank, &config) == expected);
  return comm;
}

void on_threads(int ranks, const std::function<void(int)>& work) {
  cudasim::HostThreads announced(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      const cudasim::HostThreads::Member member(announced);
      cudaSetDevice(r);
      work(r);
    });
  for (std::thread& thread : threads) thread.join();
}

void on_ranks(int ranks, const std::function<void(Rank&)>& body) {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  on_threads(ranks, [&](int r) {
    Rank rank{r, ranks};
    cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking);
    rank.comm = join(id, r, ranks);
    body(rank);
    cudaStreamSynchronize(rank.stream);
    if (rank.comm) ncclCommDestroy(rank.comm);
    cudaStreamDestroy(rank.stream);
  });
}

// The error that the rank finds on asking, and then ends by aborting.
std::string error_and_abort(Rank& rank) {
  ncclResult_t error = ncclSuccess;
  for (int i = 0; i < 2000 && error == ncclSuccess; ++i) {
    CHECK(ncclCommGetAsyncError(rank.comm, &error) == ncclSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(error == ncclInvalidUsage);
  CHECK(cudaStreamQuery(rank.stream) == cudaErrorNotReady);
  const std::string text = ncclGetLastError(rank.comm);
  CHECK(ncclCommAbort(rank.comm) == ncclSuccess);
  rank.comm = nullptr;
  CHECK(cudaStreamSynchronize(rank.stream) == cudaSuccess);  // the collective has ended without a result
  return text;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("the four collectives, apart and in place") {
  for (int ranks = 1; ranks <= 4; ++ranks)
    on_ranks(ranks, [&](Rank& r) {
      const auto W = static_cast<size_t>(r.ranks), me = static_cast<size_t>(r.rank);
      std::vector<float> mine(2 * W);  // rank + 1 times 1, 2, 3, ...
      for (size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<float>((me + 1) * (i + 1));
      float *const in = r.put(mine), *const all = r.put(mine), *const part = r.put(std::vector<float>(2, -1));
      const auto sum = static_cast<float>(W * (W + 1) / 2);

      CHECK(ncclReduceScatter(in, part, 2, ncclFloat32, ncclSum, r.comm, r.stream) == ncclSuccess);
      CHECK(r.get(part, 2) ==
            std::vector<float>{sum * static_cast<float>(2 * me + 1), sum * static_cast<float>(2 * me + 2)});
      CHECK(r.get(in, mine.size()) == mine);

      CHECK(ncclAllGather(part, all, 2, ncclFloat32, r.comm, r.stream) == ncclSuccess);
      std::vector<float> sums(2 * W);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] = sum * static_cast<float>(i + 1);
      CHECK(r.get(all, sums.size()) == sums);
      CHECK(ncclAllReduce(in, in, mine.size(), ncclFloat32, ncclSum, r.comm, r.stream) == ncclSuccess);
      CHECK(r.get(in, sums.size()) == sums);

      // In place: the piece of the whole, and back.
      float* const own = in + 2 * me;
      CHECK(ncclReduceScatter(in, own, 2, ncclFloat32, ncclSum, r.comm, r.stream) == ncclSuccess);
      CHECK(ncclAllGather(own, in, 2, ncclFloat32, r.comm, r.stream) == ncclSuccess);
      for (float& x : sums) x *= static_cast<float>(W);
      CHECK(r.get(in, sums.size()) == sums);

      int64_t* const id = r.put(std::vector<int64_t>{r.rank + 10});
      CHECK(ncclAllReduce(id, id, 1, ncclInt64, ncclMax, r.comm, r.stream) == ncclSuccess);
      CHECK(r.get(id, 1).at(0) == r.ranks + 9);
      double* const from_last = r.put(std::vector<double>{0.5 * r.rank});
      CHECK(ncclBroadcast(from_last, from_last, 1, ncclFloat64, r.ranks - 1, r.comm, r.stream) == ncclSuccess);
      CHECK(r.get(from_last, 1).at(0) == 0.5 * (r.ranks - 1));
    });
}

TEST_CASE("NCCL's maximum drops a NaN") {
  on_ranks(2, [](Rank& r) {
    float* const x = r.put(std::vector<float>{r.rank == 0 ? NAN : 3, r.rank == 1 ? NAN : 4});
    CHECK(ncclAllReduce(x, x, 2, ncclFloat32, ncclMax, r.comm, r.stream) == ncclSuccess);
    CHECK(r.get(x, 2) == std::vector<float>{3, 4});
  });
}

TEST_CASE("calls of a group are made at its end") {
  on_ranks(2, [](Rank& r) {
    float *const x = r.put(std::vector<float>{1}), *const y = r.put(std::vector<float>{2});
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, r.comm, r.stream) == ncclSuccess);
    CHECK(ncclAllReduce(y, y, 1, ncclFloat32, ncclSum, r.comm, r.stream) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(r.get(x, 1).at(0) == 1);  // not yet
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(r.get(x, 1).at(0) == 2);
    CHECK(r.get(y, 1).at(0) == 4);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
  });
}

TEST_CASE("a call that differs is an error for all ranks that names both, and touches nothing") {
  using Call = std::function<void(Rank&, float*)>;
  const auto reduce = [](size_t n, ncclDataType_t type, ncclRedOp_t op) -> Call {
    return [=](Rank& r, float* x) { ncclAllReduce(x, x, n, type, op, r.comm, r.stream); };
  };
  const auto broadcast = [](int root) -> Call {
    return [=](Rank& r, float* x) { ncclBroadcast(x, x, 2, ncclFloat32, root, r.comm, r.stream); };
  };
  const Call gather = [](Rank& r, float* x) { ncclAllGather(x, x, 2, ncclFloat32, r.comm, r.stream); };
  struct Case {
    Call most, last;
    const char *one, *other;
  };
  const Case cases[] = {
      {reduce(4, ncclFloat32, ncclSum), reduce(3, ncclFloat32, ncclSum), "(4 ncclFloat32", "(3 ncclFloat32"},
      {reduce(4, ncclFloat32, ncclSum), reduce(4, ncclInt32, ncclMax), "ncclFloat32, ncclSum", "ncclInt32, ncclMax"},
      {reduce(4, ncclFloat32, ncclSum), reduce(4, ncclFloat32, ncclMax), "ncclSum", "ncclMax"},
      {broadcast(0), broadcast(1), "root 0", "root 1"},
      {reduce(2, ncclFloat32, ncclSum), gather, "ncclAllReduce(2", "ncclAllGather(2"},
  };
  for (const Case& one : cases)
    on_ranks(3, [&](Rank& r) {
      const std::vector<float> before(8, static_cast<float>(r.rank));
      float* const x = r.put(before);
      (r.rank == 2 ? one.last : one.most)(r, x);
      const std::string text = error_and_abort(r);
      CAPTURE(text);
      CHECK(contains(text, "rank 2 calls"));
      CHECK(contains(text, one.one));
      CHECK(contains(text, one.other));
      CHECK(r.get(x, before.size()) == before);
    });
}

TEST_CASE("two communicators must be used in one order, whatever their streams") {
  ncclUniqueId second;
  REQUIRE(ncclGetUniqueId(&second) == ncclSuccess);
  on_ranks(2, [&](Rank& r) {
    ncclComm_t other = join(second, r.rank, 2);
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    float* const x = r.put(std::vector<float>{1, 2});
    cudaStreamSynchronize(r.stream);
    const auto first = [&] { ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, r.comm, r.stream); };
    const auto then = [&] { ncclBroadcast(x + 1, x + 1, 1, ncclFloat32, 0, other, stream); };
    first();
    then();
    if (r.rank == 0) first();
    then();
    if (r.rank == 1) first();
    // Whichever rank's call came second found it; both communicators' users can ask.
    ncclResult_t errors[2] = {};
    for (int i = 0; i < 2000 && errors[0] == ncclSuccess && errors[1] == ncclSuccess; ++i) {
      ncclCommGetAsyncError(r.comm, &errors[0]);
      ncclCommGetAsyncError(other, &errors[1]);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const std::string text = ncclGetLastError(errors[0] ? r.comm : other);
    CAPTURE(text);
    CHECK(contains(text, "must be used in one order on all ranks"));
    CHECK(contains(text, "ncclAllReduce"));
    CHECK(contains(text, "ncclBroadcast"));
    ncclCommAbort(r.comm);
    ncclCommAbort(other);
    r.comm = nullptr;
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    cudaStreamDestroy(stream);
  });
}

TEST_CASE("orders are compared for every two devices") {
  ncclsim::LaunchOrder order;
  const std::vector<int> all{0, 1, 2}, two{1, 2};
  CHECK(order.add(0, all, 7, "a").empty());
  CHECK(order.add(0, all, 7, "b").empty());
  CHECK(order.add(1, all, 7, "a").empty());
  CHECK(order.add(1, two, 8, "c").empty());
  CHECK(order.add(1, all, 7, "b").empty());
  CHECK(order.add(2, all, 7, "a").empty());
  CHECK(contains(order.add(2, all, 7, "b"),
                 "device 2 calls b on communicator 7 where device 1 called c on communicator 8"));
  order.forget(all);
  CHECK(order.add(2, two, 8, "c").empty());
}

TEST_CASE("ranks that do not fit into one communicator are refused") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  on_threads(2, [&](int) {
    cudaSetDevice(3);
    static std::atomic<int> next{0};
    join(id, next++, 2, ncclInvalidUsage);
    CHECK(contains(ncclGetLastError(nullptr), "Duplicate GPU detected"));
  });
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  on_threads(2, [&](int) {
    join(id, 1, 2, ncclInvalidUsage);
    CHECK(contains(ncclGetLastError(nullptr), "two threads are rank 1"));
  });
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  on_threads(2, [&](int r) { join(id, r, 2 + r, ncclInvalidUsage); });
}

TEST_CASE("what NCCL would refuse, or what is not simulated, is an error at the call") {
  on_ranks(1, [](Rank& r) {
    float* const x = r.put(std::vector<float>{1});
    CHECK(ncclAllReduce(x, x, 1, ncclFloat16, ncclSum, r.comm, r.stream) == ncclInvalidArgument);
    CHECK(ncclAllReduce(x, x, 1, ncclFloat32, ncclProd, r.comm, r.stream) == ncclInvalidArgument);
    CHECK(contains(ncclGetLastError(nullptr), "not simulated"));
    CHECK(ncclBroadcast(x, x, 1, ncclFloat32, 1, r.comm, r.stream) == ncclInvalidArgument);
    cudaSetDevice(5);
    CHECK(ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, r.comm, r.stream) == ncclInvalidUsage);
    CHECK(contains(ncclGetLastError(nullptr), "device is 5, the communicator's 0"));
    cudaSetDevice(0);
  });
}
