// Tests whose ranks are processes: the reporter and what main() does. Every test case runs on all ranks. A rank prints
// only what fails on it, with its rank in front, at once (a hang or a crash later must not swallow it); the exit code is
// not 0 on any rank when a check failed on one. Included by the one file that defines DOCTEST_CONFIG_IMPLEMENT.
#pragma once

#include <cstdio>
#include <mutex>
#include <sstream>
#include <string>

#include "../ranks.h"
#include "dist/mpi/mpi_communicator.h"
#include "dist/mpi/mpi_environment.h"
#include "runtime/host_streams.h"

namespace trencadis::test {

inline int world_rank = 0;  // doctest makes reporters itself, so they cannot be handed anything

// Prints failures only.
class RankReporter final : public doctest::IReporter {
 public:
  explicit RankReporter(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats& stats) override {
    if (world_rank == 0)
      std::printf("rank 0: %u test cases, %u failed\n", stats.numTestCasesPassingFilters, stats.numTestCasesFailed);
  }
  void test_case_start(const doctest::TestCaseData& test) override { name_ = test.m_name; }
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException& error) override {
    print("", 0, fmt::format("exception: {}", error.error_string.c_str()));
  }
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData& assertion) override {
    if (!assertion.m_failed) return;
    print(assertion.m_file, assertion.m_line,
          fmt::format("CHECK({}) is CHECK({}){}", assertion.m_expr, assertion.m_decomp.c_str(),
                      assertion.m_threw ? fmt::format(" threw {}", assertion.m_exception.c_str()) : ""));
  }
  void log_message(const doctest::MessageData& message) override {
    print(message.m_file, message.m_line, message.m_string.c_str());
  }
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  void print(const char* file, int line, const std::string& text) {
    const std::lock_guard lock(mutex_);
    std::string context;
    for (int i = 0; i < doctest::IReporter::get_num_active_contexts(); ++i) {
      std::ostringstream out;
      doctest::IReporter::get_active_contexts()[i]->stringify(&out);
      context += "\n    with " + out.str();
    }
    std::fprintf(stderr, "[rank %d] \"%s\" %s:%d: %s%s\n", world_rank, name_, file, line, text.c_str(),
                 context.c_str());
  }
  std::mutex mutex_;
  const char* name_ = "";
};
REGISTER_REPORTER("rank", 1, RankReporter);

// Runs the tests that the arguments choose; the exit code counts, over all ranks, failing runs: all ranks exit alike.
inline int run_tests(int argc, char** argv, const MpiEnvironment& mpi) {
  world_rank = mpi.rank();
  doctest::Context context(argc, argv);
  context.setOption("reporters", "rank");
  context.setOption("no-intro", true);
  int64_t failed = context.run() != 0;
  const auto world = make_mpi_world();
  InlineStream stream("main");
  world->all_reduce(View(&failed, 1), ReduceOp::sum, stream, {"failed ranks"});
  if (failed && mpi.rank() == 0) std::fprintf(stderr, "%ld ranks failed\n", static_cast<long>(failed));
  return failed ? 1 : 0;
}

}  // namespace trencadis::test
