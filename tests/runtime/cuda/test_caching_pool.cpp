// CachingPool: sizes, reuse, what it says when the device is full.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "runtime/check.h"
#include "runtime/cuda/caching_pool.h"
#include "runtime/cuda/handles.h"

#undef CHECK
#include <doctest/doctest.h>

using namespace trencadis;

namespace {
struct Pool {
  PoolGroup group{{Device::Kind::cuda, 0}};
  CachingPool pool;
  explicit Pool(CachingPool::Options options = {}) : pool(group, nullptr, options) {}
};
constexpr int64_t kMiB = 1 << 20;
}  // namespace

TEST_CASE("sizes: 8 per doubling up to 1 MiB, then multiples of 2 MiB") {
  for (const auto& [asked, given] : std::vector<std::pair<int64_t, int64_t>>{{0, 512},
                                                                             {1, 512},
                                                                             {512, 512},
                                                                             {513, 1024},
                                                                             {4096, 4096},
                                                                             {4097, 4608},
                                                                             {8192, 8192},
                                                                             {8193, 9216},
                                                                             {1000000, 1048576},
                                                                             {kMiB, kMiB},
                                                                             {kMiB + 1, 2 * kMiB},
                                                                             {5 * kMiB, 6 * kMiB}})
    CHECK(CachingPool::block_size(asked) == given);
  for (int64_t asked = 4096; asked <= kMiB; asked += 97) {
    const int64_t given = CachingPool::block_size(asked);
    CHECK(given >= asked);
    CHECK(given % 512 == 0);
    CHECK(static_cast<double>(given - asked) < 0.125 * static_cast<double>(asked));
    CHECK(CachingPool::block_size(given) == given);
  }
}

TEST_CASE("blocks are apart, aligned, and used again; the second round asks the device for nothing") {
  Pool p;
  const std::vector<int64_t> sizes = {1, 600, 600, 5000, 100000, 3 * kMiB, 0};
  int64_t device_allocations = 0;
  std::set<void*> first;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::pair<char*, int64_t>> blocks;
    std::set<void*> seen;
    for (const int64_t size : sizes) {
      char* data = static_cast<char*>(p.pool.allocate(size));
      CHECK(reinterpret_cast<uintptr_t>(data) % 512 == 0);
      for (const auto& [other, bytes] : blocks) CHECK((data + size <= other || other + bytes <= data));
      blocks.emplace_back(data, size);
      seen.insert(data);
    }
    CHECK(seen.size() == sizes.size());
    if (round == 0) {
      first = seen;
      device_allocations = p.pool.statistics().device_allocations;
    }
    CHECK(seen == first);
    for (const auto& [data, size] : blocks) p.pool.free(data, size);
    CHECK(p.pool.statistics().in_use == 0);
  }
  CHECK(p.pool.statistics().device_allocations == device_allocations);
  p.pool.release_cached();
  CHECK(p.pool.statistics().cached == 0);
  CHECK(p.pool.statistics().slabs == 0);
}

TEST_CASE("releasing keeps the slabs of blocks that are in use") {
  Pool p;
  void *a = p.pool.allocate(1000), *b = p.pool.allocate(1000), *c = p.pool.allocate(70000);
  p.pool.free(b, 1000);
  p.pool.free(c, 70000);
  p.pool.release_cached();
  CHECK(p.pool.statistics().slabs == 1);
  CHECK(p.pool.allocate(1000) == b);
  p.pool.free(a, 1000);
  p.pool.free(b, 1000);
}

TEST_CASE("wrong frees are errors") {
  Pool p;
  void* a = p.pool.allocate(1000);
  CHECK_THROWS_WITH_AS(p.pool.free(a, 999), doctest::Contains("allocated as 1000"), Error);
  p.pool.free(a, 1000);
  CHECK_THROWS_WITH_AS(p.pool.free(a, 1000), doctest::Contains("not alive"), Error);
}

TEST_CASE("a device that is full: what other pools keep is given back, then an error says what to do") {
  Pool p;
  CachingPool other(p.group, nullptr, {});
  size_t free = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  // Most of the memory, kept by the other pool.
  const auto most = static_cast<int64_t>(free / 10 * 7);
  other.free(other.allocate(most), most);
  CHECK(other.statistics().cached >= most);
  void* data = p.pool.allocate(most);
  CHECK(other.statistics().cached == 0);

  std::string text;
  try {
    p.pool.allocate(most);
  } catch (const Error& error) {
    text = error.what();
  }
  CHECK(text.find("cuda:0 has no room for " + std::to_string(CachingPool::block_size(most)) +
                  " bytes: " + std::to_string(CachingPool::block_size(most)) + " are in use") == 0);
  CHECK(text.find("use a smaller model or micro-batch") != std::string::npos);
  p.pool.free(data, most);
  void* small = p.pool.allocate(1000);  // and everything goes on
  p.pool.free(small, 1000);
}
