#include "models/trainer/launch.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <csignal>
#include <cstring>
#include <map>
#include <thread>

#include "runtime/cpu/streams.h"
#include "runtime/random.h"
#include "runtime/tensor.h"

namespace trencadis {

namespace {

enum class ErrorClass { none, usage, data, other };

// Throws the same error on all ranks if any of them has one; own_error is empty where there is none.
void agree_on_success(Communicator& comm, ErrorClass own_class, const std::string& own_error);

}  // namespace

std::vector<int64_t> exchange_words(Communicator& comm, const std::vector<int64_t>& own, const char* what) {
  InlineStream stream("exchange");
  const int64_t count = static_cast<int64_t>(own.size()), size = comm.size();
  std::vector<int64_t> all(static_cast<size_t>(count * size));
  std::copy(own.begin(), own.end(), all.begin() + comm.rank() * count);
  const View view(all.data(), count * size);
  comm.all_gather(view.slice(comm.rank() * count, count), view, stream, {what, Traffic::other});
  return all;
}

std::vector<std::string> exchange_texts(Communicator& comm, const std::string& own) {
  const std::vector<int64_t> lengths = exchange_words(comm, {static_cast<int64_t>(own.size())}, "lengths of texts");
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const size_t words = static_cast<size_t>(longest / 8 + 1);
  std::vector<int64_t> packed(words, 0);
  std::memcpy(packed.data(), own.data(), own.size());
  const std::vector<int64_t> all = exchange_words(comm, packed, "texts");
  std::vector<std::string> texts;
  for (int r = 0; r < comm.size(); ++r) {
    const char* text = reinterpret_cast<const char*>(all.data() + static_cast<size_t>(r) * words);
    texts.emplace_back(text, static_cast<size_t>(lengths[static_cast<size_t>(r)]));
  }
  return texts;
}

void on_all_ranks(Communicator& comm, const std::function<void()>& work) {
  ErrorClass error_class = ErrorClass::none;
  std::string error;
  try {
    work();
  } catch (const UsageError& e) {
    error_class = ErrorClass::usage;
    error = e.what();
  } catch (const DataError& e) {
    error_class = ErrorClass::data;
    error = e.what();
  } catch (const std::exception& e) {
    error_class = ErrorClass::other;
    error = e.what();
  }
  agree_on_success(comm, error_class, error);
}

namespace {

void agree_on_success(Communicator& comm, ErrorClass own_class, const std::string& own_error) {
  const std::string own = fmt::format("{}{}", static_cast<int>(own_class), own_error);
  const std::vector<std::string> all = exchange_texts(comm, own);
  std::map<std::string, std::vector<int>> ranks_by_error;
  ErrorClass first = ErrorClass::none;
  for (int r = 0; r < comm.size(); ++r) {
    const std::string& text = all[static_cast<size_t>(r)];
    const auto error_class = static_cast<ErrorClass>(text[0] - '0');
    if (error_class == ErrorClass::none) continue;
    if (first == ErrorClass::none) first = error_class;
    ranks_by_error[text.substr(1)].push_back(r);
  }
  if (first == ErrorClass::none) return;
  std::string message;
  for (const auto& [error, ranks] : ranks_by_error) {
    if (!message.empty()) message += '\n';
    if (static_cast<int>(ranks.size()) < comm.size()) message += fmt::format("on rank {}: ", fmt::join(ranks, ", "));
    message += error;
  }
  switch (first) {
    case ErrorClass::usage:
      throw Agreed<UsageError>(message);
    case ErrorClass::data:
      throw Agreed<DataError>(message);
    default:
      throw Agreed<Error>(message);
  }
}

}  // namespace

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
