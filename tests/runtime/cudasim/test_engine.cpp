// The simulator's threads, blocks, barriers and warps, against what CUDA's manual says.
#include "kernels.h"
#include "runtime/cudasim/launch.h"

#undef CHECK
#include <doctest/doctest.h>

using namespace trencadis;

TEST_CASE("sums of blocks in every order") {
  const std::vector<float> x(300, 1.0f);
  for (const auto order : {cudasim::Order::forward, cudasim::Order::reverse, cudasim::Order::seeded}) {
    cudasim::options().order = order;
    CHECK(sim_test::block_sums(x, 3, 128) == std::vector<float>{128, 128, 44});
  }
  cudasim::options().order = cudasim::Order::forward;
}
