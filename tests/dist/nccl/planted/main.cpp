// Planted bugs of NCCL and its streams: a program that is right (step.cpp), and one mistake a name; and a start that is
// wrong (start.cpp). Each must be caught, as the table says.
//
//   planted_nccl NAME            runs it under every schedule in a process of its own, against the table
//   planted_nccl NAME SCHEDULE   runs it here. Exit code 0: right numbers, 1: wrong ones, 3: an Error, which it prints,
//                                97, 98: stopped by the simulator
#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "planted.h"
#include "runtime/cudasim/executor.h"
#include "tests/runtime/cudasim/planted_child.h"

namespace {

std::string bug;

using namespace trencadis::test;

// Which rank comes first is the host's business, so what one schedule sees of a missing wait may differ from run to
// run: of the schedules up to the last, one has to see it. ThreadSanitizer sees it under any.
const std::array<const char*, 8> kSchedules = {"eager",  "lazy",   "late",   "seed:1",
                                               "seed:2", "seed:3", "seed:4", "seed:5"};
constexpr size_t kUnseeded = 3;  // what ranks do differently is an Error with its labels under each of these
struct Row {
  const char* name;
  Verdict verdict;
  const char* says;  // part of the output, where it is an Error
};
const Row kTable[] = {
    {"none", passes, ""},
    {"none_on_one_channel", passes, ""},
    {"none_on_late_host", passes, ""},
    {"id_broadcast_then_start", error, "the message of rank 0 in \"NCCL's id\" never came"},
    {"gather_too_early", wrong, ""},
    {"compute_before_gather", wrong, ""},
    {"reduce_too_early", wrong, ""},
    {"step_before_reduce", wrong, ""},
    {"released_before_reduced", wrong, ""},
    {"pinned_reused_early", wrong, ""},
    {"result_not_waited_for", wrong, ""},
    {"host_reads_device", touched, "host code touches device memory"},
    {"units_swapped_in_silence", wrong, ""},
    {"units_swapped", error, "gather parameters of h.1"},
    {"counts_differ", error, "48 f32"},
    {"types_differ", error, "96 bf16"},
    {"collective_skipped", error, "reduce gradients of h.0"},
    {"other_order_of_communicators", error, "channel 2: reduce gradients of h.0"},
    {"communicators_exchanged", error, "channel 2: gather parameters of h.0"},
    {"rank_throws", error, "an error elsewhere in rank 1"},
};

int run_here() {
  try {
    return bug == "id_broadcast_then_start" ? trencadis::planted::start_after_broadcast() : trencadis::planted::train();
  } catch (const std::exception& caught) {
    std::printf("error: %s\n", caught.what());
    return error;
  }
}

// A race, where there is a sanitizer for it, is one also if the numbers happen to be right.
bool is_race(const Row& row) { return row.verdict == wrong && std::strcmp(row.name, "units_swapped_in_silence") != 0; }

bool check(const Row& row) {
  if (row.verdict == touched && !kGuards) return true;  // only access rights see it
  const int wanted = kThreads && is_race(row) ? race : row.verdict;
  const size_t schedules = row.verdict == passes || row.verdict == wrong ? kSchedules.size() : kUnseeded;
  bool seen = false, as_expected = true;
  for (size_t i = 0; i < schedules && !(row.verdict == wrong && seen); ++i) {
    std::string output;
    const int code = run_child(row.name, kSchedules[i], &output);
    std::printf("%-28s %-6s %s\n", row.name, kSchedules[i], text_of(code));
    if (code == wanted && output.find(row.says) != std::string::npos) {
      seen = true;
      continue;
    }
    // Another schedule sees it. (Rights to device memory change when a host thread waits; eager leaves nothing to wait for.)
    if ((row.verdict == wrong || row.verdict == touched) && code == passes) continue;
    as_expected = false;
    std::printf("  expected: %s, with \"%s\". Its output:\n%s\n", text_of(wanted), row.says, output.c_str());
  }
  if (!seen) std::printf("  no schedule saw it\n");
  return seen && as_expected;
}

}  // namespace

bool trencadis::planted::planted(const char* name) { return bug == name; }

int main(int argc, char** argv) {
  if (argc == 3) {
    bug = argv[1];
    trencadis::cudasim::set_schedule(trencadis::cudasim::Schedule::parse(argv[2]));
    return run_here();
  }
  bool as_expected = true, found = false;
  for (const Row& row : kTable) {
    if (argc == 2 && std::strcmp(argv[1], row.name) != 0) continue;
    found = true;
    as_expected = check(row) && as_expected;
  }
  if (!found) std::printf("there is no planted bug of that name\n");
  return found && as_expected ? 0 : 1;
}
