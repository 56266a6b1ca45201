// Launches that a device refuses.
#include "device/shared_array.h"
#include "plant.h"

namespace trencadis::planted {

namespace {

__global__ void count(int* total) { atomicAdd(total, 1); }

__global__ void __launch_bounds__(128) bounded_count(int* total) { atomicAdd(total, 1); }

template <int BYTES>
__global__ void __launch_bounds__(32) count_with_shared(int* total) {
  __shared__ SharedArray<int, BYTES / 4> array;
  array[threadIdx.x] = 1;
  atomicAdd(total, 1);
}

struct Large {
  char bytes[5000];
};
template <typename T>
__global__ void __launch_bounds__(32) count_with_argument(int* total, T) {
  atomicAdd(total, 1);
}

// Whether the threads counted themselves.
template <typename... Parameters>
bool counts(int expected, void (*kernel)(int*, Parameters...), dim3 grid, dim3 block, size_t dynamic,
            Parameters... arguments) {
  Global<int> total(std::vector<int>(1, 0));
  launch(kernel, grid, block, dynamic, total.data(), arguments...);
  return total.get()[0] == expected;
}

constexpr size_t kKiB = 1024;

bool with_opt_in(bool opt_in, size_t allowed, size_t wanted) {
  const auto kernel = count_with_shared<1024>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, opt_in ? static_cast<int>(allowed) : 0);
  return counts(32, kernel, 1, 32, wanted);
}

}  // namespace

std::vector<Bug> launch_bugs() {
  return {
      {"too_many_threads", [](bool broken) { return counts(1024, count, 1, broken ? 2048 : 1024, 0); }},
      {"too_many_threads_in_z",
       [](bool broken) { return counts(64, count, 1, broken ? dim3(1, 1, 65) : dim3(1, 1, 64), 0); }},
      {"more_threads_than_bound", [](bool broken) { return counts(128, bounded_count, 1, broken ? 160 : 128, 0); }},
      {"too_many_blocks_in_y",
       [](bool broken) { return counts(1000, count, broken ? dim3(1, 65536) : dim3(1, 1000), 1, 0); }},
      {"empty_grid", [](bool broken) { return counts(1, count, broken ? 0 : 1, 1, 0); }},
      {"no_opt_in_to_shared", [](bool broken) { return with_opt_in(!broken, 64 * kKiB, 64 * kKiB); }},
      {"opt_in_beyond_the_device",
       [](bool broken) { return with_opt_in(true, (broken ? 228 : 200) * kKiB, 64 * kKiB); }},
      {"static_and_dynamic_shared",
       [](bool broken) { return counts(32, count_with_shared<40 * 1024>, 1, 32, (broken ? 16 : 8) * kKiB); }},
      {"too_much_static_shared",
       [](bool broken) {
         return counts(32, broken ? count_with_shared<49 * 1024> : count_with_shared<48 * 1024>, 1, 32, 0);
       }},
      {"too_many_argument_bytes",
       [](bool broken) {
         return broken ? counts<Large>(32, count_with_argument<Large>, 1, 32, 0, Large{})
                       : counts<int>(32, count_with_argument<int>, 1, 32, 0, 0);
       }},
  };
}

}  // namespace trencadis::planted
