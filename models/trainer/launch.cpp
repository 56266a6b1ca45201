#include "models/trainer/launch.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <csignal>

#include "dist/on_all_ranks.h"
#include "runtime/random.h"
#include "runtime/tensor.h"

namespace trencadis {

CoreShare share_cores(Communicator& comm) {
  constexpr size_t kMaxCores = 8192, kMaskWords = kMaxCores / 64;  // what Linux can be built for
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  std::vector<int64_t> own(1 + kMaskWords, 0);
  own[0] = static_cast<int64_t>(hash_name(host));
  auto* const set = reinterpret_cast<cpu_set_t*>(own.data() + 1);
  if (sched_getaffinity(0, kMaskWords * sizeof(int64_t), set) != 0) own[1] = 1;
  const std::vector<int64_t> all = exchange_words(comm, own, "core masks");

  using Mask = std::bitset<kMaxCores>;
  const auto mask_of = [&](int rank) {
    Mask mask;
    for (size_t core = 0; core < kMaxCores; ++core) {
      const auto word = static_cast<uint64_t>(all[static_cast<size_t>(rank) * own.size() + 1 + core / 64]);
      mask[core] = (word >> (core % 64)) & 1u;
    }
    return mask;
  };
  const Mask mine = mask_of(comm.rank());
  Mask used;
  int sharing = 0;
  for (int r = 0; r < comm.size(); ++r) {
    if (all[static_cast<size_t>(r) * own.size()] != own[0]) continue;  // another host
    const Mask theirs = mask_of(r);
    used |= theirs;
    sharing += (theirs & mine).any();
  }
  CoreShare share;
  share.threads = std::max(1, static_cast<int>(mine.count()) / std::max(1, sharing));
  const auto online = static_cast<size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  if (comm.rank() == 0 && used.count() < online)
    share.warning = fmt::format("{} of {} cores are left idle: mpirun binds each rank to one core; add --bind-to none",
                                online - used.count(), online);
  return share;
}

namespace {
volatile std::sig_atomic_t signal_received = 0;

void on_signal(int number) {
  // A scheduler warns with SIGUSR1 before it sends SIGTERM: that is the first request to end, not the second.
  if ((signal_received == SIGINT || signal_received == SIGTERM) && number != SIGUSR1) _exit(128 + number);
  signal_received = number;
}
}  // namespace

StopSignals::StopSignals() {
  signal_received = 0;
  for (int number : {SIGINT, SIGTERM, SIGUSR1}) std::signal(number, on_signal);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that would outgrow its limit is then an error of the write
}

StopSignals::~StopSignals() {
  for (int number : {SIGINT, SIGTERM, SIGUSR1, SIGXFSZ}) std::signal(number, SIG_DFL);
}

int StopSignals::received() { return signal_received; }

}  // namespace trencadis
