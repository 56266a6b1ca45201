// What the programs of planted bugs share: a bug runs in a process of its own, and how that ends is the verdict.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace trencadis::test {

// Exit codes: 0 right numbers, 1 wrong ones, 3 an Error that the program printed, 66 ThreadSanitizer, 97 and 98 the
// simulator.
enum Verdict { passes = 0, wrong = 1, error = 3, race = 66, stopped = 97, touched = 98 };

inline const char* text_of(int code) {
  switch (code) {
    case passes:
      return "passes";
    case wrong:
      return "wrong numbers";
    case error:
      return "an Error";
    case race:
      return "data race";
    case stopped:
      return "stopped";
    case touched:
      return "host touches device";
    default:
      return "?";
  }
}

// Whether this build sees races, and whether device memory is guarded by access rights.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreads = true, kGuards = false;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr bool kThreads = false, kGuards = false;
#else
inline constexpr bool kThreads = false, kGuards = true;
#endif

// The exit code of this program run with a bug's name and a schedule. Its output is appended to `output`.
inline int run_child(const char* name, const char* schedule, std::string* output) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    execl("/proc/self/exe", "planted", name, schedule, static_cast<char*>(nullptr));
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

}  // namespace trencadis::test
