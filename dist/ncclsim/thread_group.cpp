#include "dist/ncclsim/thread_group.h"

#include <algorithm>
#include <new>
#include <utility>

#include "runtime/check.h"

namespace trencadis::ncclsim {

Library& Library::instance() {
  // Never destroyed: threads that outlive main may still call. Not on the heap: ThreadSanitizer would see there which
  // thread made it, and not (for the simulator is compiled without it) that the others came later.
  alignas(Library) static char memory[sizeof(Library)];
  static Library& library = *new (memory) Library;
  return library;
}

ThreadGroup::ThreadGroup(int number, int ranks) : number_(number), members_(static_cast<size_t>(ranks)) {
  devices_.assign(static_cast<size_t>(ranks), -1);
}

ThreadGroup::~ThreadGroup() {
  Library& library = Library::instance();
  const std::lock_guard lock(library.mutex);
  if (--library.groups_alive == 0) library.order = {};
}

bool ThreadGroup::add_member(int ranks, int rank, int device) {
  if (ranks != size())
    set_error(fmt::format("a communicator has {} ranks for rank {} and {} for another one", ranks, rank, size()));
  else if (rank < 0 || rank >= size())
    set_error(fmt::format("rank {} of a communicator of {} ranks", rank, size()));
  else if (members_[static_cast<size_t>(rank)].device >= 0)
    set_error(fmt::format("two threads are rank {} of one communicator", rank));
  const auto same = std::find(devices_.begin(), devices_.end(), device);
  if (same != devices_.end())
    set_error(fmt::format("Duplicate GPU detected: ranks {} and {} are both on device {}", same - devices_.begin(),
                          rank, device));
  if (!error_.empty()) return false;
  members_[static_cast<size_t>(rank)].device = devices_[static_cast<size_t>(rank)] = device;
  ++joined_;
  return complete();
}

void ThreadGroup::set_error(std::string text) {
  if (error_.empty()) error_ = std::move(text);
  Library::instance().order.forget(devices_);
}

std::string ThreadGroup::error() const {
  const std::lock_guard lock(Library::instance().mutex);
  return error_;
}

std::shared_ptr<ThreadGroup::Pending> ThreadGroup::pending(int64_t sequence) {
  for (const auto& one : pending_)
    if (one->sequence == sequence) return one;
  return nullptr;
}

ncclResult_t ThreadGroup::issue(int rank, const CollectiveCall& call, Buffers buffers, cudaStream_t stream) {
  Library& library = Library::instance();
  const std::lock_guard lock(library.mutex);
  Member& member = members_[static_cast<size_t>(rank)];
  if (member.aborted) return ncclInvalidUsage;
  const std::string what = fmt::format("{} #{} of communicator {}", describe(call), member.calls, number_);
  if (error_.empty()) {
    const std::string disorder = library.order.add(member.device, devices_, number_, what);
    if (!disorder.empty()) set_error(disorder);
  }

  std::shared_ptr<Pending> met = pending(member.calls);
  if (!met) {
    met = std::make_shared<Pending>();
    met->sequence = member.calls;
    met->first_caller = rank;
    met->work = std::make_shared<Work>(Work{call, std::vector<Buffers>(members_.size())});
    met->rendezvous = std::make_shared<cudasim::Rendezvous>(what, size(), [work = met->work](auto& meeting) {
      perform(work->call, work->buffers, [&](int r, const std::function<void()>& part) { meeting.as_party(r, part); });
    });
    pending_.push_back(met);
  } else if (!agree(met->work->call, call)) {
    set_error(fmt::format("call #{} of communicator {} differs: rank {} calls {}, rank {} calls {}", member.calls,
                          number_, met->first_caller, describe(met->work->call), rank, describe(call)));
  }
  met->work->buffers[static_cast<size_t>(rank)] = buffers;
  ++member.calls;
  if (++met->callers == size()) std::erase(pending_, met);

  Part part{met->rendezvous, rank};
  auto rendezvous = met->rendezvous;
  if (!error_.empty()) {  // a meeting to which nobody else comes
    rendezvous =
        std::make_shared<cudasim::Rendezvous>(fmt::format("{}, never done because {}", what, error_), 2, [](auto&) {});
    part = {rendezvous, 0};
  }
  while (!member.open.empty() && member.open.front().rendezvous.expired()) member.open.pop_front();
  member.open.push_back(part);
  cudasim::enqueue(stream, std::move(rendezvous), part.party);
  return ncclSuccess;
}

void ThreadGroup::abort(int rank) {
  Library& library = Library::instance();
  const std::lock_guard lock(library.mutex);
  Member& member = members_[static_cast<size_t>(rank)];
  member.aborted = true;
  for (const Part& part : member.open)
    if (const auto rendezvous = part.rendezvous.lock()) cudasim::withdraw(*rendezvous, part.party);
  member.open.clear();
  library.order.forget(devices_);
}

}  // namespace trencadis::ncclsim
