#include "dist/nccl/agreement.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "runtime/host_streams.h"

namespace trencadis {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {
constexpr auto kBehind = 1ms;  // between rounds while some rank has calls to make that others have made
constexpr auto kIdle = 20ms;
}  // namespace

Agreement::Agreement(std::unique_ptr<Communicator> host, const CommOptions& options, const AbortFlag* abort)
    : host_(std::move(host)), options_(options), abort_(abort), reports_(static_cast<size_t>(host_->size())) {
  thread_ = std::thread([this] { run(); });
}

Agreement::~Agreement() {
  {
    const std::lock_guard lock(mutex_);
    leaves_ = news_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

int64_t Agreement::add(Fingerprint& call) {
  const std::lock_guard lock(mutex_);
  call.sequence = made_++;
  calls_.push_back(call);
  news_ = true;
  changed_.notify_all();
  return call.sequence;
}

void Agreement::wait_for(const Fingerprint& call) {
  const auto started = Clock::now();
  std::unique_lock lock(mutex_);
  while (failure_.empty() && agreed_ <= call.sequence) {
    changed_.wait_for(lock, 20ms);
    const double waited = std::chrono::duration<double>(Clock::now() - started).count();
    if (agreed_ > call.sequence || !failure_.empty()) break;
    const bool aborted = abort_ && *abort_;
    if (!aborted && waited <= options_.timeout_seconds) continue;
    lock.unlock();
    const std::string why = aborted ? "abort was requested"
                                    : fmt::format(
                                          "no progress for {:.1f} s; see whether they died or hang, or raise "
                                          "the timeout",
                                          waited);
    const std::string text = gives_up(call, why);
    fail(text);
    throw Error(text);
  }
  if (!failure_.empty()) throw Error(failure_);
}

std::vector<Agreement::Note> Agreement::exchange(const std::string& what, const Note& own) {
  const auto all_call = [&](const std::string& label) {
    Fingerprint call = make_fingerprint(0, CollectiveKind::all_gather, label, DType::i64, std::tuple_size_v<Note>);
    add(call);
    wait_for(call);
  };
  {
    const std::lock_guard lock(mutex_);
    note_ = own;  // in every report that counts the call which follows
  }
  all_call(what);
  std::vector<Note> notes;
  {
    const std::lock_guard lock(mutex_);
    for (const Report& report : reports_) notes.push_back(report.note);
  }
  all_call(what + ", arrived");  // nobody goes on, or writes its next note, before all have these
  return notes;
}

void Agreement::fail(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return;
  failure_ = text;
  failure_is_own_ = news_ = true;
  changed_.notify_all();
}

std::string Agreement::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::string Agreement::failure_within(double seconds) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return !failure_.empty(); });
  return failure_;
}

bool Agreement::agreed(int64_t number) const {
  const std::lock_guard lock(mutex_);
  return number < agreed_;
}

std::vector<int> Agreement::ranks_without(int64_t number) const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  for (size_t r = 0; r < reports_.size(); ++r)
    if (static_cast<int>(r) != host_->rank() && reports_[r].made <= number) ranks.push_back(static_cast<int>(r));
  return ranks;
}

std::string Agreement::gives_up(const Fingerprint& call, const std::string& why) const {
  const std::vector<int> missing = ranks_without(call.sequence);
  return fmt::format("{}: rank {} of {} stops waiting for {}: {}", describe(call), host_->rank(), host_->size(),
                     missing.empty() ? "the device, where all ranks have called it" : name_ranks(missing), why);
}

// ---------------------------------------------------------------------------------------------------- the thread

void Agreement::run() {
  std::unique_lock lock(mutex_);
  try {
    while (round(lock)) {
      int64_t least = made_, most = made_;
      for (const Report& report : reports_) {
        least = std::min(least, report.made);
        most = std::max(most, report.made);
      }
      if (least > agreed_) continue;  // there is more to compare
      changed_.wait_for(lock, most > agreed_ ? kBehind : kIdle, [&] { return std::exchange(news_, false); });
    }
  } catch (const std::exception& error) {
    if (!lock.owns_lock()) lock.lock();
    set_failure(error.what());
  }
}

void Agreement::set_failure(std::string text) {
  if (failure_.empty()) failure_ = std::move(text);
  changed_.notify_all();
}

bool Agreement::round(std::unique_lock<std::mutex>& lock) {
  static_assert(sizeof(Report) % sizeof(int64_t) == 0);
  Report own;
  own.made = made_;
  own.state = !failure_.empty() ? State::failed : leaves_ ? State::leaves : State::works;
  failure_.copy(own.text, sizeof own.text - 1);
  own.note = note_;
  std::copy_n(calls_.begin(), std::min(made_ - agreed_, kAtATime), own.calls);
  std::vector<Report> reports(reports_.size());
  constexpr auto kWords = static_cast<int64_t>(sizeof(Report) / sizeof(int64_t));
  InlineStream stream("agreement");
  lock.unlock();  // the host goes on meanwhile
  host_->all_gather(ConstView(reinterpret_cast<const int64_t*>(&own), kWords),
                    View(reinterpret_cast<int64_t*>(reports.data()), kWords * host_->size()), stream, {"agreement"});
  lock.lock();
  reports_ = reports;

  for (size_t r = 0; r < reports.size(); ++r)
    if (reports[r].state == State::failed) {
      set_failure(fmt::format("rank {} failed: {}", r, reports[r].text));
      return false;
    }
  if (!compare()) return false;

  // A rank that leaves must not have less calls than another one; when all leave there is nothing more to compare.
  int64_t most = 0;
  bool all_leave = true;
  for (const Report& report : reports) {
    most = std::max(most, report.made);
    all_leave = all_leave && report.state == State::leaves;
  }
  for (size_t r = 0; r < reports.size(); ++r)
    if (reports[r].state == State::leaves && reports[r].made < most) {
      set_failure(fmt::format("rank {} has destroyed its communicator after {} calls; another rank has made {}", r,
                              reports[r].made, most));
      return false;
    }
  return !all_leave;
}

// Compares the calls that all ranks have made and sent.
bool Agreement::compare() {
  int64_t common = agreed_ + kAtATime;
  for (const Report& report : reports_) common = std::min(common, report.made);
  std::vector<Fingerprint> by_rank(reports_.size());
  for (int64_t i = 0; agreed_ < common; ++i) {
    for (size_t r = 0; r < by_rank.size(); ++r) by_rank[r] = reports_[r].calls[i];
    try {
      check_agreement(by_rank);
    } catch (const Error& error) {
      set_failure(error.what());
      return false;
    }
    ++agreed_;
    calls_.pop_front();
  }
  changed_.notify_all();
  return true;
}

}  // namespace trencadis
