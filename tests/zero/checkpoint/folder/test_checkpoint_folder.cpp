// The folder of a run's checkpoints through deaths: a save is killed before each of its changes to the file system in
// turn, and whatever is left must hold all that was complete. Also the order that a loss of power asks for, clocks that
// are set back, and two runs in one folder.
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <optional>
#include <set>

// The project's headers first, see temp_folder.h.
// clang-format off
#include "zero/checkpoint/checkpoint_folder.h"
#include "models/temp_folder.h"
// clang-format on

using namespace trencadis;
using namespace trencadis::test;
namespace fs = std::filesystem;

namespace {

const std::string kOurs = "00000000000000aa", kTheirs = "00000000000000bb";
constexpr const char* kShard = "rank-0000-of-0001.safetensors";

CheckpointIndex index_of(const std::string& run, int64_t step, int64_t saved_at) {
  CheckpointIndex index;
  index.run = run;
  index.save = fmt::format("{:016x}", saved_at);
  index.saved_at = saved_at;
  index.step = step;
  index.files = {{kShard, 16, 0}};
  return index;
}

// A shard is the 16 digits of its save: enough to see that a folder is whole and not mixed.
std::vector<std::string> save(const std::string& out, const CheckpointIndex& index) {
  const std::string partial = begin_checkpoint(out, index.step);
  std::ofstream(partial + "/" + kShard) << index.save;
  return finish_checkpoint(out, index);
}

bool is_whole(const std::string& folder) {
  std::ifstream file(folder + "/" + kShard);
  std::string digits;
  file >> digits;
  return digits == read_candidate(folder).index.save;
}

// The newest checkpoint that --resume auto would find of a training; all that are listed must be whole.
std::optional<CheckpointIndex> newest(const std::string& out, const std::string& run) {
  std::optional<CheckpointIndex> found;
  for (const CheckpointCandidate& candidate : list_checkpoints(out).candidates) {
    CHECK_MESSAGE(is_whole(candidate.folder), candidate.folder);
    if (!found && candidate.index.run == run) found = candidate.index;
  }
  return found;
}

// Whole checkpoints of a training, under whatever name they lie.
std::set<int64_t> steps_of(const std::string& out, const std::string& run) {
  std::set<int64_t> steps;
  for (const auto& entry : fs::directory_iterator(out))
    if (!entry.path().string().ends_with(".partial") && fs::exists(entry.path() / "index.json") &&
        is_whole(entry.path()) && read_candidate(entry.path()).index.run == run)
      steps.insert(read_candidate(entry.path()).index.step);
  return steps;
}

std::string text_at(pid_t process, uint64_t address) {
  char text[512] = {};
  iovec to{text, sizeof text - 1}, from{reinterpret_cast<void*>(address), sizeof text - 1};
  return process_vm_readv(process, &to, 1, &from, 1, 0) > 0 ? std::string(text) : std::string();
}

// What the call of the operating system changes; empty: nothing that is looked at here.
std::string change_of(pid_t process, const __ptrace_syscall_info& info) {
  const auto* const argument = info.entry.args;
  switch (info.entry.nr) {
    case SYS_openat:
      return (argument[2] & O_CREAT) != 0 ? "create" : "";
    case SYS_write:
      return "write";
    case SYS_fsync:
      return "sync";
    case SYS_mkdirat:
      return "make";
    case SYS_unlinkat:
      return "remove";
    case SYS_renameat:
    case SYS_renameat2:
      return "rename " + text_at(process, argument[3]);
#if defined(SYS_rename)  // calls that newer processors do not have
    case SYS_open:
      return (argument[1] & O_CREAT) != 0 ? "create" : "";
    case SYS_rename:
      return "rename " + text_at(process, argument[1]);
    case SYS_mkdir:
      return "make";
    case SYS_unlink:
    case SYS_rmdir:
      return "remove";
#endif
    default:
      return "";
  }
}

struct Traced {
  std::vector<std::string> changes;
  bool ended = false;  // by itself
};

// Runs work() in a process of its own, which is killed before its change number `fatal`. None: not permitted here.
std::optional<Traced> run_until(size_t fatal, const std::function<void()>& work) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
    raise(SIGSTOP);
    try {
      work();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  Traced traced;
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return std::nullopt;
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  while (ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) == 0 && waitpid(child, &status, 0) == child) {
    if (WIFEXITED(status)) {
      REQUIRE(WEXITSTATUS(status) == 0);
      traced.ended = true;
      break;
    }
    if (WIFSIGNALED(status)) break;
    __ptrace_syscall_info info{};
    if (!WIFSTOPPED(status) || WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) <= 0) return std::nullopt;
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) continue;
    const std::string change = change_of(child, info);
    if (change.empty()) continue;
    if (traced.changes.size() + 1 == fatal) kill(child, SIGKILL);
    traced.changes.push_back(change);
  }
  return traced;
}

// A run that has saved step 2, beside another training with step 4 and one more.
void fill(const std::string& out) {
  save(out, index_of(kTheirs, 6, 10));
  save(out, index_of(kOurs, 2, 20));
}

}  // namespace

TEST_CASE("checkpoint folder: a save killed at any point loses nothing, and the next one clears up") {
  for (const std::string& at_place : {std::string(), kOurs, kTheirs}) {
    CAPTURE(at_place);
    bool ended = false;
    size_t deaths = 0;
    for (size_t fatal = 1; !ended; ++fatal) {
      CAPTURE(fatal);
      const TempFolder temp;
      const std::string out = temp.path("out");
      fs::create_directory(out);
      fill(out);
      if (!at_place.empty()) save(out, index_of(at_place, 4, 30));
      const std::set<int64_t> theirs = steps_of(out, kTheirs);
      const int64_t ours = newest(out, kOurs)->step;

      const std::optional<Traced> traced = run_until(fatal, [&] {
        save(out, index_of(kOurs, 4, 40));
        prune_checkpoints(out, kOurs, 1);
      });
      if (!traced) {
        MESSAGE("skipped: processes may not be traced here");
        return;
      }
      ended = traced->ended;
      deaths += !ended;
      const std::optional<CheckpointIndex> found = newest(out, kOurs);
      REQUIRE(found);
      CHECK(found->step >= ours);
      CHECK(steps_of(out, kTheirs) == theirs);

      save(out, index_of(kOurs, 6, 50));
      CHECK(prune_checkpoints(out, kOurs, 1).empty());
      CHECK(newest(out, kOurs)->step == 6);
      CHECK(steps_of(out, kOurs) == std::set<int64_t>{6});
      CHECK(steps_of(out, kTheirs) == theirs);
      for (const auto& entry : fs::directory_iterator(out))  // no part of a checkpoint stays behind
        CHECK_MESSAGE((!entry.is_directory() ||
                       (!entry.path().string().ends_with(".partial") && fs::exists(entry.path() / "index.json"))),
                      entry.path().string());
    }
    CHECK(deaths > 15);
  }
}

TEST_CASE("checkpoint folder: what a checkpoint replaces goes only after the new name is on the disk") {
  const TempFolder temp;
  const std::string out = temp.path("out");
  fs::create_directory(out);
  fill(out);
  save(out, index_of(kOurs, 4, 30));
  const std::optional<Traced> traced = run_until(0, [&] {
    save(out, index_of(kOurs, 4, 40));
    prune_checkpoints(out, kOurs, 1);
  });
  if (!traced) return;
  const std::vector<std::string>& changes = traced->changes;
  const auto named = std::find(changes.begin(), changes.end(), "rename " + out + "/step-00000004");
  REQUIRE(named != changes.end());
  const auto first_sync = std::find(changes.begin(), changes.end(), "sync");
  CHECK(first_sync < named);
  CHECK(std::find(first_sync, named, "remove") == named);  // nothing goes before
  REQUIRE(named + 1 != changes.end());
  CHECK(named[1] == "sync");
}

TEST_CASE("checkpoint folder: the last to be saved is the newest, whatever the clock says") {
  const TempFolder temp;
  const std::string out = temp.path("out");
  fs::create_directory(out);
  save(out, index_of(kOurs, 2, 1'000'000));
  save(out, index_of(kOurs, 4, 5));  // the clock was set back
  CHECK(newest(out, kOurs)->step == 4);
  prune_checkpoints(out, kOurs, 1);
  CHECK(steps_of(out, kOurs) == std::set<int64_t>{4});
  save(out, index_of(kOurs, 3, 6));  // a run that went back and took another way
  CHECK(newest(out, kOurs)->step == 3);
}

TEST_CASE("checkpoint folder: one run at a time") {
  const TempFolder temp;
  const std::string out = temp.path("out");
  fs::create_directory(out);
  {
    const FolderLock first(out, "the folder");
    const std::string error = error_of<DataError>([&] { FolderLock(out, "the folder", 0.1); });
    CHECK(contains(error, "another run saves its checkpoints there"));
    CHECK(contains(error, out));
  }
  const FolderLock later(out, "the folder", 0);
}
