// Limits of a launch, the blocks of a grid in their order, options and counts.
#include "runtime/cudasim/launch.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string_view>

#include "runtime/cudasim/sanitizers.h"
#include "runtime/cudasim/scheduler.h"

namespace trencadis::cudasim {

namespace {

constexpr size_t kMaxArgumentBytes = 4096;  // 32764 since CUDA 12.1, but not in every build of a kernel

// One kernel runs at a time, whichever threads of the host launch. No mutex: ThreadSanitizer knows those, and would take
// kernels of unrelated streams for ordered. What it guards is Unseen.
class DeviceTurn {
 public:
  DeviceTurn() {
    while (__atomic_test_and_set(&taken_, __ATOMIC_ACQUIRE)) sched_yield();
  }
  ~DeviceTurn() { __atomic_clear(&taken_, __ATOMIC_RELEASE); }
  DeviceTurn(const DeviceTurn&) = delete;
  DeviceTurn& operator=(const DeviceTurn&) = delete;

 private:
  static inline bool taken_ = false;
};

Options read_options() {
  Options options;
  const char* text = std::getenv("TRENCADIS_SIM_ORDER");
  if (text == nullptr) return options;
  const std::string_view order(text);
  if (order == "reverse") {
    options.order = Order::reverse;
  } else if (order.substr(0, 5) == "seed:") {
    options.order = Order::seeded;
    const auto [end, error] = std::from_chars(text + 5, text + order.size(), options.seed);
    if (error != std::errc() || *end != 0) throw UsageError(fmt::format("TRENCADIS_SIM_ORDER={}: seed:NUMBER", order));
  } else if (order != "forward") {
    throw UsageError(fmt::format("TRENCADIS_SIM_ORDER={}: use forward, reverse or seed:NUMBER", order));
  }
  return options;
}

// Bytes of dynamic shared memory that cudaFuncSetAttribute allowed, by kernel.
std::map<const void*, size_t>& opted_in() {
  static std::map<const void*, size_t> allowed;
  return allowed;
}

// Bytes of dynamic shared memory that a launch may have. In a DeviceTurn.
size_t allowed_shared(const void* kernel) {
  const Unseen unseen;
  const auto found = opted_in().find(kernel);
  return found == opted_in().end() ? options().shared : std::max(options().shared, found->second);
}

// Crews that take turns with the blocks of a grid. For ThreadSanitizer there are two: blocks of one crew follow each other
// in its eyes, since they use the same contexts and shared memory, but neighbours (even and odd) stay unordered. And there
// is a pair for each stream or thread of the host that launches, so that their kernels stay unordered too; the pair that
// was not used for longest is given up when there are many, for ThreadSanitizer has room for some 8000 contexts.
constexpr size_t kCrews = kThreadSanitizer ? 2 : 1;
constexpr size_t kMaxPairs = 6;
struct CrewPair {
  void* context;
  Crew crews[kCrews];
};
CrewPair& crews_of_caller() {
  const Unseen unseen;  // threads of the host follow each other here, which ThreadSanitizer is not to take for order
  static std::vector<std::unique_ptr<CrewPair>> pairs;  // last used comes last
  void* context = running_context();
  auto found = std::find_if(pairs.begin(), pairs.end(), [&](const auto& pair) { return pair->context == context; });
  if (found == pairs.end()) {
    if (pairs.size() == kMaxPairs) pairs.erase(pairs.begin());
    pairs.push_back(std::make_unique<CrewPair>());
    pairs.back()->context = context;
  } else {
    std::rotate(found, found + 1, pairs.end());
  }
  return *pairs.back();
}

std::string describe(const dim3& size) { return fmt::format("({},{},{})", size.x, size.y, size.z); }

// The blocks' numbers in the order in which they run.
std::vector<uint64_t> block_order(uint64_t blocks) {
  std::vector<uint64_t> order(blocks);
  std::iota(order.begin(), order.end(), uint64_t{0});
  if (options().order == Order::reverse) std::reverse(order.begin(), order.end());
  if (options().order == Order::seeded)
    for (uint64_t i = blocks; i > 1; --i) std::swap(order[i - 1], order[random_below(static_cast<uint32_t>(i))]);
  return order;
}

}  // namespace

Options& options() {
  static Options options = read_options();
  return options;
}

Statistics& statistics() {
  static Statistics statistics;
  return statistics;
}

void check_launch(const Launch& launch) {
  const auto refuse = [&](const std::string& why) {
    throw KernelError(fmt::format("{}: launch of {}, grid {}, block {}: {}", to_string(launch.place),
                                  kernel_name(launch.kernel), describe(launch.grid), describe(launch.block), why));
  };
  const dim3 &grid = launch.grid, &block = launch.block;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0)
    refuse("the grid is empty; skip the launch where there is nothing to do");
  if (grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535)
    refuse("a grid has at most 2147483647 blocks in x, 65535 in y and in z");
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0) refuse("the block is empty");
  if (block.x > 1024 || block.y > 1024 || block.z > 64 || threads > kMaxThreads)
    refuse("a block has at most 1024 threads, 64 in z");
  if (threads > static_cast<uint64_t>(launch_bound(launch.kernel)))
    refuse(fmt::format("{} threads, and the kernel's __launch_bounds__ promise at most {}", threads,
                       launch_bound(launch.kernel)));
  if (launch.argument_bytes > kMaxArgumentBytes)
    refuse(fmt::format("{} bytes of arguments, {} are allowed", launch.argument_bytes, kMaxArgumentBytes));
  const DeviceTurn turn;
  const size_t limit = allowed_shared(launch.kernel);
  if (launch.dynamic_shared > limit)
    refuse(
        fmt::format("{} bytes of dynamic shared memory, {} are allowed: raise it with cudaFuncSetAttribute("
                    "kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), up to {}",
                    launch.dynamic_shared, limit, options().shared_opt_in));
}

void run_grid(const Launch& launch, const std::function<void()>& body) {
  const DeviceTurn turn;
  ++statistics().launches;
  seed_random(options().seed);
  CrewPair& pair = crews_of_caller();
  // Fixed size and dynamic together: the opt-in is to dynamic memory, and lifts the limit of the sum.
  const size_t together = allowed_shared(launch.kernel) > options().shared ? options().shared_opt_in : options().shared;
  BlockJob job{.kernel = &body,
               .grid = launch.grid,
               .block = launch.block,
               .index = {},
               .static_shared_limit = std::min(options().shared, together - launch.dynamic_shared),
               .dynamic_shared = launch.dynamic_shared};
  const uint64_t x = launch.grid.x, y = launch.grid.y;
  for (Crew& crew : pair.crews) release(&crew.started);
  size_t turn_of = 0;
  for (const uint64_t number : block_order(x * y * launch.grid.z)) {
    job.index = {static_cast<unsigned>(number % x), static_cast<unsigned>(number / x % y),
                 static_cast<unsigned>(number / (x * y))};
    ++statistics().blocks;
    statistics().threads += uint64_t{launch.block.x} * launch.block.y * launch.block.z;
    Crew& crew = pair.crews[turn_of++ % kCrews];
    try {
      run_block(crew, job);
    } catch (const KernelError& error) {
      for (Crew& each : pair.crews) acquire(&each.ended[0]), acquire(&each.ended[1]);
      throw KernelError(fmt::format("kernel {}, {}", kernel_name(launch.kernel), error.what()));
    }
  }
  for (Crew& crew : pair.crews) acquire(&crew.ended[0]), acquire(&crew.ended[1]);
}

}  // namespace trencadis::cudasim

extern "C" cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  using namespace trencadis::cudasim;
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;  // a hint
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorInvalidValue;
  if (value < 0 || static_cast<size_t>(value) > options().shared_opt_in)
    throw KernelError(fmt::format("cudaFuncSetAttribute: {} bytes of dynamic shared memory for {}; the device has {}",
                                  value, kernel_name(kernel), options().shared_opt_in));
  const DeviceTurn turn;
  const Unseen unseen;
  opted_in()[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}
