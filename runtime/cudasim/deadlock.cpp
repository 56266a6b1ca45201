// Host threads that wait for the device, and what is said when they would wait forever.
#include <algorithm>
#include <map>

#include "runtime/check.h"
#include "runtime/cudasim/device_memory.h"
#include "runtime/cudasim/executor_state.h"

namespace trencadis::cudasim {

namespace {
thread_local bool is_member = false;  // of some HostThreads
}  // namespace

HostThreads::HostThreads(int count) : open_(count) {
  const Executor::Call call("HostThreads");
  Executor::instance().threads_alive += count;
}

HostThreads::~HostThreads() {
  const Executor::Call call("~HostThreads");
  Executor::instance().threads_alive -= open_;
  Executor::instance().progress.notify_all();
}

HostThreads::Member::Member(HostThreads& threads) {
  const Executor::Call call("HostThreads::Member");
  CHECK(threads.open_ > 0 && !is_member, "more threads than HostThreads announced, or one of them twice");
  --threads.open_;
  is_member = true;
}

HostThreads::Member::~Member() {
  const Executor::Call call("HostThreads::~Member");
  is_member = false;
  --Executor::instance().threads_alive;
  Executor::instance().progress.notify_all();
}

void Executor::check_arrival(const Rendezvous& rendezvous, int party) const {
  if (party < 0 || party >= rendezvous.parties())
    fail(fmt::format("{}: party {} of {}", rendezvous.what(), party, rendezvous.parties()));
  if (rendezvous.marks_[static_cast<size_t>(party)] || rendezvous.arrived_ == rendezvous.parties())
    fail(fmt::format("{}: party {} comes twice", rendezvous.what(), party));
}

void Executor::wait_for(Call& call, const std::shared_ptr<Mark>& mark) {
  if (!mark) return;
  const bool only_needed = schedule.policy == Schedule::Policy::lazy || schedule.policy == Schedule::Policy::late;
  if (only_needed) need(*mark);
  auto last_move = std::chrono::steady_clock::now();
  close_device_memory();
  while (!mark->done) {
    const int64_t before = moves_;
    {
      const DeviceAccess access;
      while (!mark->done && step(only_needed)) {
      }
    }
    close_device_memory();
    if (moves_ != before) progress.notify_all();
    if (mark->done) break;

    // Nothing that this thread needs can run: only another host thread helps, by enqueueing something.
    if (in_circle(mark->stream)) report_deadlock(*mark, "operations wait for each other");
    if (is_member) {
      waited_.push_back(mark.get());
      const auto waiting = std::count_if(waited_.begin(), waited_.end(), [](const Mark* m) { return !m->done; });
      if (waiting == threads_alive)
        report_deadlock(*mark, fmt::format("all host threads that have not ended wait ({})", threads_alive));
    }
    const int64_t seen = moves_;
    progress.wait_for(call.lock(), std::chrono::milliseconds(200));
    if (is_member) waited_.erase(std::find(waited_.begin(), waited_.end(), mark.get()));
    const auto now = std::chrono::steady_clock::now();
    if (moves_ != seen || moves_ != before) last_move = now;
    if (!mark->done && now - last_move > patience_)
      report_deadlock(*mark, fmt::format("nothing has moved for {} s", patience_.count()));
  }
  mark->order.acquire();
}

// The streams that must move before the head of `stream` can run.
std::vector<const CUstream_st*> Executor::blockers(const CUstream_st& stream) const {
  std::vector<const CUstream_st*> found;
  if (stream.queue.empty()) return found;
  const Operation& head = *stream.queue.front();
  for (const auto& mark : head.after)
    if (!mark->done) found.push_back(mark->stream);
  if (head.rendezvous)
    for (const auto& mark : head.rendezvous->marks_)
      if (mark && mark->stream->ended + 1 != mark->position) found.push_back(mark->stream);
  return found;
}

// Whether a walk from stream to stream that blocks it comes to one twice. Rendezvous that lack a party do not change that:
// whoever is still to come cannot undo what others wait for.
bool Executor::in_circle(const CUstream_st* from) const {
  std::map<const CUstream_st*, bool> closed;  // false: on the path at the moment
  const auto visit = [&](const auto& self, const CUstream_st* stream) -> bool {
    const auto [entry, is_new] = closed.emplace(stream, false);
    if (!is_new) return !entry->second;
    for (const CUstream_st* blocker : blockers(*stream))
      if (self(self, blocker)) return true;
    closed[stream] = true;
    return false;
  };
  return visit(visit, from);
}

std::string Executor::describe(const CUstream_st& stream) const {
  std::string text = fmt::format("stream {} of device {}: {} of {} operations done", stream.number, stream.device,
                                 stream.ended, stream.enqueued);
  if (stream.queue.empty()) return text;
  const Operation& head = *stream.queue.front();
  text += fmt::format("; next: {}", head.what);
  for (const auto& mark : head.after)
    if (!mark->done)
      text += fmt::format("; waits for operation {} of stream {} ({})", mark->position, mark->stream->number,
                          mark->stream->at(mark->position).what);
  if (!head.rendezvous) return text;
  text += fmt::format(" (as party {} of {}", head.party, head.rendezvous->parties());
  for (size_t party = 0; party < head.rendezvous->marks_.size(); ++party) {
    const auto& mark = head.rendezvous->marks_[party];
    if (!mark)
      text += fmt::format("; party {} has not come", party);
    else if (mark->stream->ended + 1 != mark->position)
      text += fmt::format("; party {} is still behind others on stream {}", party, mark->stream->number);
  }
  return text + ")";
}

void Executor::report_deadlock(const Mark& mark, const std::string& reason) const {
  std::string text = fmt::format("deadlock: {}. A host thread waits for operation {} of stream {}.", reason,
                                 mark.position, mark.stream->number);
  for (const CUstream_st* stream : streams_)
    if (!stream->queue.empty()) text += "\n  " + describe(*stream);
  fail(text);
}

}  // namespace trencadis::cudasim
