// CachingPool on a device that is full, which the simulator makes as small as the test wants.
#include <string>

#include "runtime/cuda/caching_pool.h"
#include "runtime/cudasim/device_memory.h"
#include "sim_test.h"

using namespace trencadis;

TEST_CASE("a device that is full: what other pools keep is given back, then an error says what to do") {
  cudasim::set_device_memory(32 << 20);
  PoolGroup group({Device::Kind::cuda, 0});
  CachingPool pool(group, nullptr, {}), other(group, nullptr, {});
  const int64_t most = 22 << 20;  // kept by the other pool
  other.free(other.allocate(most), most);
  CHECK(other.statistics().cached >= most);
  void* data = pool.allocate(most);
  CHECK(other.statistics().cached == 0);

  std::string text;
  try {
    pool.allocate(most);
  } catch (const Error& error) {
    text = error.what();
  }
  CHECK(text.find("cuda:0 has no room for " + std::to_string(CachingPool::block_size(most)) +
                  " bytes: " + std::to_string(CachingPool::block_size(most)) + " are in use") == 0);
  CHECK(text.find("use a smaller model or micro-batch") != std::string::npos);
  pool.free(data, most);
  void* small = pool.allocate(1000);  // and everything goes on
  pool.free(small, 1000);
  cudasim::set_device_memory(size_t{4} << 30);
}
