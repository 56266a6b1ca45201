// Ranks as processes: on_ranks() and main() of test_dist_mpi, and what only this backend promises.
#define DOCTEST_CONFIG_IMPLEMENT

#include "rank_main.h"
#include "runtime/cpu/backend.h"

namespace trencadis::test {

bool accumulates_the_sum() { return false; }

void on_ranks(const CommOptions& options, const std::function<void(Communicator&)>& body, AbortFlag* abort) {
  if (abort) *abort = false;
  const auto together = make_mpi_world();  // keeps the ranks in one test case, whatever happens to the other one
  const auto comm = make_mpi_world(options, abort);
  try {
    body(*comm);
  } catch (const std::exception& error) {
    FAIL_CHECK(error.what());
  }
  together->barrier({"end of a test"});
}

TEST_CASE("mpi: many communicators come and go, and threads use theirs at once") {
  const auto world = make_mpi_world();
  WorkerStream a("a"), b("b");
  for (int round = 0; round < 30; ++round) {
    const auto first = world->duplicate(), second = world->duplicate();
    int64_t x = 1, y = 2, z = 3;
    first->all_reduce(View(&x, 1), ReduceOp::sum, a, {"x"});
    second->all_reduce(View(&y, 1), ReduceOp::sum, b, {"y"});
    InlineStream here("here");
    world->all_reduce(View(&z, 1), ReduceOp::sum, here, {"z"});
    a.synchronize();
    b.synchronize();
    CHECK(x == world->size());
    CHECK(y == 2 * world->size());
    CHECK(z == 3 * world->size());
  }
}

TEST_CASE("mpi: staging buffers are communication memory of the context, and are given back") {
  Context context(make_cpu_backend());
  const auto live = [&] { return context.memory().live()[static_cast<size_t>(MemoryCategory::communication)]; };
  {
    const auto world = make_mpi_world({}, nullptr, &context);
    const int64_t staging = live();
    CHECK((world->size() > 1) == (staging > 0));
    CHECK(staging <= 4 << 20);
    const auto second = world->duplicate();
    CHECK(live() == 2 * staging);
  }
  CHECK(live() == 0);
}

}  // namespace trencadis::test

int main(int argc, char** argv) {
  const trencadis::MpiEnvironment mpi;
  return trencadis::test::run_tests(argc, argv, mpi);
}
