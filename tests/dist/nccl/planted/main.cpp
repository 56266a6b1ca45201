// Planted bugs of NCCL and its streams: a program that is right (step.cpp), and one mistake a name. Each must be caught,
// as the table says.
//
//   planted_nccl NAME            runs it under every schedule in a process of its own, against the table
//   planted_nccl NAME SCHEDULE   runs it here. Exit code 0: right numbers, 1: wrong ones, 3: an Error, which it prints,
//                                97, 98: stopped by the simulator
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "planted.h"
#include "runtime/cudasim/executor.h"

namespace {

std::string bug;

enum Verdict { passes = 0, wrong = 1, error = 3, stopped = 97, touched = 98, race = 66 };
const char* text_of(int code) {
  switch (code) {
    case passes:
      return "passes";
    case wrong:
      return "wrong numbers";
    case error:
      return "an Error";
    case stopped:
      return "stopped";
    case touched:
      return "host touches device";
    case race:
      return "data race";
    default:
      return "?";
  }
}

const std::array<const char*, 3> kSchedules = {"eager", "lazy", "late"};
constexpr int kSeeds = 8;  // the programs without a bug run under these too
struct Row {
  const char* name;
  std::array<Verdict, 3> seen;  // under kSchedules
  bool is_race;                 // what ThreadSanitizer is for
  const char* says;             // part of the output, where it is not numbers
};
// Missing waits are wrong numbers under lazy, late or both (tests/runtime/cudasim/planted_streams says why), and races to
// ThreadSanitizer under any schedule. What ranks do differently is an Error with its labels under every schedule.
const Row kTable[] = {
    {"none", {passes, passes, passes}, false, ""},
    {"none_on_one_channel", {passes, passes, passes}, false, ""},
    {"gather_too_early", {passes, wrong, wrong}, true, ""},
    {"compute_before_gather", {passes, passes, wrong}, true, ""},
    {"reduce_too_early", {passes, wrong, passes}, true, ""},
    {"step_before_reduce", {passes, wrong, wrong}, true, ""},
    {"released_before_reduced", {passes, wrong, wrong}, true, ""},
    {"pinned_reused_early", {passes, wrong, wrong}, true, ""},
    {"result_not_waited_for", {passes, wrong, wrong}, true, ""},
    {"units_swapped_in_silence", {wrong, wrong, wrong}, false, ""},
    {"host_reads_device", {touched, touched, touched}, false, "host code touches device memory"},
    {"counts_differ", {error, error, error}, false, "96 f32"},
    {"types_differ", {error, error, error}, false, "96 bf16"},
    {"collective_skipped", {error, error, error}, false, "reduce gradients of h.0"},
    {"units_swapped", {error, error, error}, false, "gather parameters of h.1"},
    {"other_order_of_communicators", {error, error, error}, false, "channel 2: reduce gradients of h.0"},
    {"communicators_exchanged", {error, error, error}, false, "channel 1: gather parameters of h.0"},
    {"rank_throws", {error, error, error}, false, "an error elsewhere in rank 1"},
};

int run_here() {
  try {
    return trencadis::planted::train();
  } catch (const std::exception& caught) {
    std::printf("error: %s\n", caught.what());
    return error;
  }
}

// The exit code of this program run with the name and schedule; its output is shown if it surprises.
int run_child(const char* name, const char* schedule, std::string* output) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    execl("/proc/self/exe", "planted_nccl", name, schedule, static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  char buffer[4096];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) output->append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreads = true, kGuards = false;
#elif defined(__SANITIZE_ADDRESS__)
constexpr bool kThreads = false, kGuards = false;
#else
constexpr bool kThreads = false, kGuards = true;
#endif

bool check(const Row& row) {
  bool as_expected = true;
  for (size_t i = 0; i < kSchedules.size(); ++i) {
    if (row.seen[i] == touched && !kGuards) continue;  // only access rights see it
    std::string output;
    const int code = run_child(row.name, kSchedules[i], &output);
    const int wanted = kThreads && row.is_race ? race : row.seen[i];
    std::printf("%-28s %-6s %s\n", row.name, kSchedules[i], text_of(code));
    if (code == wanted && output.find(row.says) != std::string::npos) continue;
    as_expected = false;
    std::printf("  expected: %s, with \"%s\". Its output:\n%s\n", text_of(wanted), row.says, output.c_str());
  }
  for (int seed = 0; std::strncmp(row.name, "none", 4) == 0 && seed < kSeeds; ++seed) {
    std::string output;
    if (run_child(row.name, ("seed:" + std::to_string(seed)).c_str(), &output) == passes) continue;
    as_expected = false;
    std::printf("%-28s seed:%d does not pass:\n%s\n", row.name, seed, output.c_str());
  }
  return as_expected;
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
