// The simulator's threads, blocks, barriers, warps and memory, against what CUDA's manuals say of a GPU's.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <thread>

#include "kernels.h"
#include "runtime/cudasim/launch.h"
#include "runtime/random.h"
#include "sim_test.h"

using namespace trencadis;
using namespace trencadis::sim_test;
using cudasim::Order;

namespace {

// Options for the length of a scope.
struct WithOrder {
  explicit WithOrder(Order order, uint64_t seed = 1) : before(cudasim::options()) {
    cudasim::options().order = order;
    cudasim::options().seed = seed;
  }
  ~WithOrder() { cudasim::options() = before; }
  WithOrder(const WithOrder&) = delete;
  WithOrder& operator=(const WithOrder&) = delete;
  cudasim::Options before;
};

template <typename Check>
void in_every_order(Check check) {
  for (const auto& [order, seed] :
       {std::pair{Order::forward, 1}, {Order::reverse, 1}, {Order::seeded, 1}, {Order::seeded, 2}}) {
    const WithOrder with(order, static_cast<uint64_t>(seed));
    check();
  }
}

std::vector<int> count_up(int n) {
  std::vector<int> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const cudasim::KernelError& error) {
    return error.what();
  }
  return "no error";
}

bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("threads and blocks run in the order that was chosen") {
  const std::vector<int> up = count_up(40);
  const std::vector<int> down(up.rbegin(), up.rend());
  for (const auto order_of : {order_of_threads, order_of_blocks}) {
    {
      const WithOrder with(Order::forward);
      CHECK(order_of(40) == up);
    }
    {
      const WithOrder with(Order::reverse);
      CHECK(order_of(40) == down);
    }
    std::vector<int> orders[2];
    for (uint64_t seed : {1, 2}) {
      const WithOrder with(Order::seeded, seed);
      orders[seed - 1] = order_of(40);
      CHECK(order_of(40) == orders[seed - 1]);  // again the same
      std::vector<int> sorted = orders[seed - 1];
      std::sort(sorted.begin(), sorted.end());
      CHECK(sorted == up);
    }
    CHECK(orders[0] != orders[1]);
    CHECK(orders[0] != up);
  }
}

TEST_CASE("indices in three dimensions: x runs fastest") {
  in_every_order([] { CHECK(numbers_in_three_dimensions() == count_up(288)); });
}

TEST_CASE("barriers keep rounds apart") {
  std::vector<int> expected = count_up(200);
  std::rotate(expected.begin(), expected.begin() + 13, expected.end());
  in_every_order([&] { CHECK(rotate(count_up(200), 13) == expected); });
}

TEST_CASE("sums of blocks, by shuffles and a barrier") {
  in_every_order([] {
    const std::vector<float> x(300, 1.0f);
    CHECK(block_sums(x, 3, 128) == std::vector<float>{128, 128, 44});
    CHECK(block_sums(x, 1, 1024) == std::vector<float>{300});
  });
}

TEST_CASE("votes of a block") {
  in_every_order([] {
    CHECK(votes(0) == std::vector<int>{0, 0, 0});
    CHECK(votes(5) == std::vector<int>{5, 0, 1});
    CHECK(votes(96) == std::vector<int>{96, 1, 1});
  });
}

TEST_CASE("shuffles: what is outside of the segment leaves a lane its own value") {
  for (const int width : {32, 8, 1})
    for (const int operand : {0, 1, 5, 16, 31}) {
      std::vector<int> from(32), up(32), down(32), across(32);
      for (int lane = 0; lane < 32; ++lane) {
        const int begin = lane / width * width, at = lane - begin;
        const auto i = static_cast<size_t>(lane);
        from[i] = begin + operand % width;
        up[i] = at - operand >= 0 ? lane - operand : lane;
        down[i] = at + operand < width ? lane + operand : lane;
        across[i] = (lane ^ operand) < begin + width ? lane ^ operand : lane;
      }
      in_every_order([&] {
        CHECK(shuffled('i', operand, width) == from);
        CHECK(shuffled('u', operand, width) == up);
        CHECK(shuffled('d', operand, width) == down);
        CHECK(shuffled('x', operand, width) == across);
      });
    }
}

TEST_CASE("ballots, matches and reductions, over some lanes") {
  const unsigned mask = 0x80ff00f1u;
  std::vector<int> values(32);
  for (uint32_t lane = 0; lane < 32; ++lane)
    values[lane] = static_cast<int>(philox({lane, 0, 0, 0}, 7)[0]) >> (lane % 3 * 14);
  unsigned positive = 0, bits_and = ~0u, bits_or = 0, bits_xor = 0, sum = 0, low = ~0u, high = 0;
  int least = 2147483647, most = -2147483647 - 1;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    const auto bits = static_cast<unsigned>(values[lane]);
    if (values[lane] > 0) positive |= 1u << lane;
    bits_and &= bits, bits_or |= bits, bits_xor ^= bits, sum += bits;
    low = std::min(low, bits), high = std::max(high, bits);
    least = std::min(least, values[lane]), most = std::max(most, values[lane]);
  }
  in_every_order([&] {
    const WarpResults r = warp_results(mask, values);
    CHECK(r.ballot == positive);
    CHECK(r.any == 1);
    CHECK(r.all == 0);
    CHECK(r.sum == sum);
    CHECK(r.signed_sum == static_cast<int>(sum));
    CHECK(r.min == low);
    CHECK(r.max == high);
    CHECK(r.signed_min == least);
    CHECK(r.signed_max == most);
    CHECK(r.bits_and == bits_and);
    CHECK(r.bits_or == bits_or);
    CHECK(r.bits_xor == bits_xor);
    CHECK(warp_results(mask, std::vector<int>(32, 3)).all == 1);
    const WarpResults pairs = warp_results(~0u, [] {
      std::vector<int> twice = count_up(32);
      for (int& value : twice) value %= 16;
      return twice;
    }());
    for (size_t lane = 0; lane < 32; ++lane) CHECK(pairs.match[lane] == 0x10001u << lane % 16);
  });
}

TEST_CASE("tensor cores: small integers multiply exactly, wherever they lie") {
  for (const bool bf16 : {true, false}) {
    const size_t K = bf16 ? 16 : 8;
    const auto integers = [](size_t n, uint32_t key) {
      std::vector<float> x(n);
      for (uint32_t i = 0; i < n; ++i)
        x[i] = static_cast<float>(static_cast<int>(philox({i, 0, 0, 0}, key)[0] % 31) - 15);
      return x;
    };
    const std::vector<float> a = integers(16 * K, 1), b = integers(K * 8, 2), c = integers(16 * 8, 3);
    std::vector<float> expected = c;
    for (size_t row = 0; row < 16; ++row)
      for (size_t column = 0; column < 8; ++column)
        for (size_t k = 0; k < K; ++k) expected[row * 8 + column] += a[row * K + k] * b[k * 8 + column];
    in_every_order([&] { CHECK(multiply(bf16, a, b, c) == expected); });
  }
}

TEST_CASE("tf32 keeps ten bits of mantissa, to nearest, ties away from zero") {
  const float unit = 0x1p-10f;
  const std::vector<float> x{1.0f,     1 + unit, 1 + 0.5f * unit, 1 + 0.49f * unit, -1 - 0.5f * unit, 0.0f,
                             INFINITY, NAN,      2 - 0x1p-23f};
  const std::vector<float> expected{1.0f, 1 + unit, 1 + unit, 1.0f, -1 - unit, 0.0f, INFINITY, NAN, 2.0f};
  const std::vector<uint32_t> got = rounded_to_tf32(x);
  for (size_t i = 0; i < x.size(); ++i) {
    const float value = std::bit_cast<float>(got[i]);
    CHECK((value == expected[i] || (value != value && expected[i] != expected[i])));
  }
}

TEST_CASE("shared memory begins every block as NaN") {
  in_every_order([] { CHECK(fresh_shared_memory() == std::vector<uint32_t>(3 * 96, 0xffffffffu)); });
}

TEST_CASE("asynchronous copies arrive at the wait, and not before") {
  const std::vector<float> x{1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> seen = copied_in_groups(x);
  for (size_t i = 0; i < 8; ++i) {
    CHECK(std::isnan(seen[i]));
    CHECK((i < 4 ? seen[8 + i] == x[i] : std::isnan(seen[8 + i])));
    CHECK(seen[16 + i] == x[i]);
  }
}

TEST_CASE("atomics") {
  in_every_order([] {
    CHECK(atomics() == std::vector<int64_t>{100 + 63 * 32, -7, 126, ~0xff, -1, 0xffff | 100, 5, 128, int64_t{64} << 40,
                                            int64_t{63} << 32, 2 + 64});
  });
}

TEST_CASE("a kernel's name and launch bounds are read from the program") {
  CHECK(names_and_bounds() ==
        std::vector<std::pair<std::string, int>>{
            {"order_kernel", 1024}, {"numbers_kernel", 32}, {"rotate_kernel<256>", 256}, {"block_sums_kernel", 1024}});
  launch_threads(128);
  const std::string text = error_of([] { launch_threads(129); });
  CHECK(has(text, "run_now.h:"));
  CHECK(has(
      text,
      "empty_kernel, grid (1,1,1), block (129,1,1): 129 threads, and the kernel's __launch_bounds__ promise at most 128"));
}

TEST_CASE("an error names kernel, block, thread, file and line; and the next kernel runs") {
  in_every_order([] {
    for (const int index : {32, -1, 1000000000}) {
      const std::string text = error_of([&] { index_shared(index); });
      CHECK(has(text, "kernel index_kernel, block (2,0,0): thread (7,0,0), kernels_memory.cu:"));
      CHECK(has(text, "index " + std::to_string(index) + " of a SharedArray that has 0 to 31"));
    }
    index_shared(31);
    CHECK(rotate(count_up(256), 256) == count_up(256));
  });
}

TEST_CASE("host threads launch side by side") {
  std::vector<std::thread> threads;
  std::vector<std::vector<int>> results(4);
  for (auto& result : results)
    threads.emplace_back([&result] {
      for (int i = 0; i < 5; ++i) result = rotate(count_up(64), 64);
    });
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) CHECK(result == count_up(64));
}
