// The CUDA backend as a Context sees it: copies, storages, kernels on two streams, ranks as threads. The tests of this
// folder run on the simulator, under every schedule, and on a GPU.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "runtime/cuda/backend.h"
#include "runtime/storage.h"
#include "runtime/tensor.h"

#undef CHECK
#include <doctest/doctest.h>

using namespace trencadis;

namespace {

std::vector<float> count_up(size_t n, float from = 0) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), from);
  return values;
}

Tensor tensor(Context& context, int64_t n, const char* name = "test") {
  return Tensor(Storage::create(context, n * 4, MemoryCategory::workspace, name), 0, {n}, DType::f32);
}

std::vector<float> read(Context& context, const Tensor& t) {
  std::vector<float> values(static_cast<size_t>(t.size()));
  context.copy_to_host(values.data(), t);
  return values;
}

}  // namespace

TEST_CASE("a device that does not exist is an error that names it") {
  CHECK_THROWS_WITH_AS(make_cuda_backend({.device = 12345}), doctest::Contains("there is no cuda:12345"), Error);
  Context context(make_cuda_backend());
  CHECK(context.device() == Device{Device::Kind::cuda, 0});
}

TEST_CASE("copies of every size come back, through staging memory of any size") {
  for (const int64_t staging : {192, 1000, 6 << 20}) {
    Context context(make_cuda_backend({.staging_bytes = staging}));
    for (const size_t n : {0, 1, 15, 16, 17, 48, 1000, 5000}) {
      CAPTURE(staging);
      CAPTURE(n);
      std::vector<float> values = count_up(n, 1);
      const Tensor there = tensor(context, static_cast<int64_t>(n));
      context.copy_from_host(there, values.data());
      std::fill(values.begin(), values.end(), -1.0f);  // ours again
      CHECK(read(context, there) == count_up(n, 1));
    }
  }
}

TEST_CASE("a copy to the host sees what was enqueued before it; pieces of many sizes do not disturb each other") {
  Context context(make_cuda_backend({.staging_bytes = 1 << 10}));
  std::vector<Tensor> tensors;
  for (int64_t n = 1; n < 200; n += 7) {
    tensors.push_back(tensor(context, n));
    const auto values = count_up(static_cast<size_t>(n), static_cast<float>(n));
    context.copy_from_host(tensors.back(), values.data());
  }
  for (const Tensor& t : tensors)
    CHECK(read(context, t) == count_up(static_cast<size_t>(t.size()), static_cast<float>(t.size())));
}

TEST_CASE("storages come and go, and are counted as they were asked for") {
  Context context(make_cuda_backend());
  const auto storage = Storage::create(context, 1000, MemoryCategory::parameter, "unit");
  CHECK(context.memory().live_total() == 1000);
  CHECK(reinterpret_cast<uintptr_t>(storage->data()) % 512 == 0);
  storage->release();
  CHECK(context.memory().live_total() == 0);
  CHECK_THROWS_AS(storage->data(), Error);
  storage->materialise();
  CHECK(context.memory().live_total() == 1000);
}

TEST_CASE("with poison, a block arrives as NaN, also when it is used again") {
  for (const bool exact : {false, true}) {
    Context context(make_cuda_backend({.poison = true, .exact_blocks = exact}));
    for (int round = 0; round < 2; ++round) {
      const Tensor there = tensor(context, 100);
      for (const float x : read(context, there)) CHECK(std::isnan(x));
      context.kernels().zero(there);
      for (const float x : read(context, there)) CHECK(x == 0);
    }
  }
}

TEST_CASE("kernels run on the compute stream, and on a stream of their own that events order") {
  Context context(make_cuda_backend({.poison = true}));
  const auto side = context.make_stream("side");
  const auto side_kernels = context.make_kernels(*side);
  Stream& compute = context.compute_stream();
  for (int round = 0; round < 5; ++round) {
    const Tensor a = tensor(context, 1000), b = tensor(context, 1000);
    context.kernels().fill(a, 3);
    side->wait(compute.record());
    side_kernels->fill(b, 4);
    side_kernels->add(b, a);
    compute.wait(side->record());
    context.kernels().add(b, a);
    for (const float x : read(context, b)) CHECK(x == 10);
    // a and b go back here: compute has waited for the side stream.
  }
}

TEST_CASE("a product goes through cuBLAS on its stream") {
  Context context(make_cuda_backend());
  const Tensor a = tensor(context, 6), b = tensor(context, 6), c = tensor(context, 4);
  const std::vector<float> a_host = {1, 2, 3, 4, 5, 6}, b_host = {1, 0, 2, 1, 0, 3};  // (2,3) and (3,2)
  context.copy_from_host(a, a_host.data());
  context.copy_from_host(b, b_host.data());
  context.kernels().matmul(c, a, b, 2, 2, 3, false, false, false);
  CHECK(read(context, c) == std::vector<float>{5, 11, 14, 23});
}

TEST_CASE("ranks as threads have a context each") {
  std::vector<std::vector<float>> results(3);
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < results.size(); ++rank)
    ranks.emplace_back([&, rank] {
      Context context(make_cuda_backend());
      for (int round = 0; round < 20; ++round) {
        const Tensor x = tensor(context, 300);
        context.kernels().fill(x, static_cast<float>(rank));
        context.kernels().add(x, x);
        results[rank] = read(context, x);
      }
    });
  for (std::thread& rank : ranks) rank.join();
  for (size_t rank = 0; rank < results.size(); ++rank)
    CHECK(results[rank] == std::vector<float>(300, 2 * static_cast<float>(rank)));
}
