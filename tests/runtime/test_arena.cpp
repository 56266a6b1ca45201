// ArenaAllocator: alignment, reuse, coalescing, poison, errors, and that resident memory follows what is alive.
#include <fstream>
#include <thread>

#include "kernel_test.h"
#include "runtime/cpu/arena.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

using namespace trencadis;
using namespace trencadis::test;

namespace {

uint64_t next_random(uint64_t& state) { return mix64(state += 0x9E3779B97F4A7C15ull); }

// Bytes of this process that lie in physical memory.
int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * 4096;
}

}  // namespace

TEST_CASE("blocks are aligned, and shifted on demand") {
  for (int misalign : {0, 4, 16, 36, 60}) {
    ArenaAllocator arena({.misalign = misalign});
    std::vector<std::pair<void*, int64_t>> blocks;
    for (int64_t bytes : {1, 4, 63, 64, 65, 1000, 4096, 1 << 20}) {
      void* data = arena.allocate(bytes);
      CHECK(reinterpret_cast<uintptr_t>(data) % 64 == static_cast<uintptr_t>(misalign));
      std::memset(data, 1, static_cast<size_t>(bytes));
      blocks.emplace_back(data, bytes);
    }
    for (auto [data, bytes] : blocks) arena.free(data, bytes);
    CHECK(arena.extent() == 0);
  }
  expect_error([] { ArenaAllocator({.misalign = 6}); }, "misalign");
  expect_error([] { ArenaAllocator({.misalign = 64}); }, "misalign");
}

TEST_CASE("a freed block is reused, neighbours merge, the best fit wins") {
  ArenaAllocator arena({});
  std::vector<void*> block;
  for (int64_t kib : {100, 10, 30, 10, 20, 10, 30, 10}) block.push_back(arena.allocate(kib * 1024));
  const int64_t extent = arena.extent();

  arena.free(block[2], 30 * 1024);
  arena.free(block[4], 20 * 1024);
  arena.free(block[6], 30 * 1024);
  CHECK(arena.allocate(20 * 1024) == block[4]);  // exactly fitting
  CHECK(arena.allocate(25 * 1024) == block[2]);  // the lowest address among equals
  arena.free(block[4], 20 * 1024);
  arena.free(block[5], 10 * 1024);  // joins the holes on both sides
  CHECK(arena.allocate(59 * 1024) == block[4]);
  CHECK(arena.extent() == extent);

  arena.free(block[7], 10 * 1024);  // at the end: the arena shrinks, by the small hole before the block as well
  CHECK(arena.extent() < extent - 11 * 1024);
  CHECK(arena.allocate(10 * 1024) < block[7]);
  CHECK(arena.high_water() == extent);
}

TEST_CASE("random traffic keeps blocks apart and leaves nothing behind") {
  ArenaAllocator arena({});
  struct Block {
    unsigned char* data;
    int64_t bytes;
    unsigned char mark;
  };
  std::vector<Block> live;
  uint64_t random = 1;
  int64_t live_bytes = 0, peak = 0;
  for (int i = 0; i < 20000; ++i) {
    if (live.size() < 200 && next_random(random) % 2 == 0) {
      const int64_t bytes = static_cast<int64_t>(next_random(random) % (uint64_t{1} << (next_random(random) % 16)));
      const auto mark = static_cast<unsigned char>(next_random(random));
      auto* data = static_cast<unsigned char*>(arena.allocate(bytes));
      std::memset(data, mark, static_cast<size_t>(bytes));
      live.push_back({data, bytes, mark});
      live_bytes += bytes + 128;
      peak = std::max(peak, live_bytes);
    } else if (!live.empty()) {
      const size_t at = next_random(random) % live.size();
      const Block block = live[at];
      REQUIRE(std::all_of(block.data, block.data + block.bytes, [&](unsigned char c) { return c == block.mark; }));
      arena.free(block.data, block.bytes);
      live_bytes -= block.bytes + 128;
      live[at] = live.back();
      live.pop_back();
    }
  }
  CHECK(arena.high_water() < 2 * peak);  // measured: 1.3
  for (const Block& block : live) arena.free(block.data, block.bytes);
  CHECK(arena.extent() == 0);
}

TEST_CASE("poison: NaN on arrival, and NaN after the block is freed") {
  Context context(make_cpu_backend({.poison = true}));
  auto storage = Storage::create(context, 400, MemoryCategory::workspace, "w");
  const auto* values = static_cast<const float*>(storage->data());
  CHECK(std::all_of(values, values + 100, [](float x) { return std::isnan(x); }));
}

#if defined(__SANITIZE_ADDRESS__)
TEST_CASE("AddressSanitizer is told what lies outside of every live block") {
  for (int misalign : {0, 4, 16}) {
    ArenaAllocator arena({.misalign = misalign});
    char* first = static_cast<char*>(arena.allocate(100));
    char* second = static_cast<char*>(arena.allocate(52));
    CHECK(__asan_region_is_poisoned(first, 100) == nullptr);
    CHECK(__asan_region_is_poisoned(second, 52) == nullptr);
    CHECK(__asan_address_is_poisoned(first + 100));
    CHECK(__asan_address_is_poisoned(second + 52));
    CHECK(__asan_address_is_poisoned(second - 8));
    arena.free(first, 100);
    CHECK(__asan_address_is_poisoned(first));
    CHECK(__asan_address_is_poisoned(first + 99));
    CHECK(__asan_region_is_poisoned(second, 52) == nullptr);
    arena.free(second, 52);
  }
}
#endif

TEST_CASE("errors name the bytes") {
  ArenaAllocator arena({});
  const int64_t bytes = arena.reserved() - 63;  // 63 bytes are not enough for the red zone
  expect_error([&] { arena.allocate(bytes); }, std::to_string(bytes));
  expect_error([&] { arena.allocate(int64_t{1} << 62); }, std::to_string(int64_t{1} << 62));
  CHECK(arena.extent() == 0);
  void* data = arena.allocate(100);
  expect_error([&] { arena.free(data, 99); }, "99");
  arena.free(data, 100);
  expect_error([&] { arena.free(data, 100); }, "not alive");
}

TEST_CASE("resident memory follows the peak of live bytes, and steady steps take no new pages") {
  ArenaAllocator arena({});
  const int64_t before = resident_bytes();
  const int64_t bytes = 10'000'000;
  const auto step = [&] {
    std::vector<void*> blocks;
    for (int i = 0; i < 8; ++i) {
      blocks.push_back(arena.allocate(bytes));
      std::memset(blocks.back(), 1, bytes);
    }
    for (void* block : blocks) arena.free(block, bytes);
  };
  step();
  const int64_t after_one = resident_bytes();
  for (int i = 0; i < 20; ++i) step();
  CHECK(arena.high_water() < 8 * bytes + 8 * 128);
  CHECK(resident_bytes() - after_one < (1 << 20));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadow memory is resident too
  CHECK(after_one - before > 8 * bytes - (1 << 20));
  CHECK(after_one - before < 8 * bytes + (4 << 20));  // and what this program itself takes
#else
  (void)before;
#endif
}

TEST_CASE("threads share an arena") {
  ArenaAllocator arena({});
  std::vector<std::thread> threads;
  std::atomic<bool> good{true};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      uint64_t random = static_cast<uint64_t>(t);
      for (int i = 0; i < 2000; ++i) {
        const int64_t bytes = static_cast<int64_t>(next_random(random) % 5000) + 1;
        auto* data = static_cast<unsigned char*>(arena.allocate(bytes));
        std::memset(data, t, static_cast<size_t>(bytes));
        if (!std::all_of(data, data + bytes, [t](unsigned char c) { return c == t; })) good = false;
        arena.free(data, bytes);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(good);
  CHECK(arena.extent() == 0);
}
