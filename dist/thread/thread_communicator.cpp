// How it works: the ranks meet (a barrier), each having put its fingerprint and buffers on a shared table; then
// everyone reads what it needs out of the others' buffers, and they meet again before anyone goes on.
//
// Invariant: between two meetings a rank writes only memory that no other rank reads in that phase. Each phase below
// says what that is.
#include "dist/thread/thread_communicator.h"

#include <cstring>
#include <mutex>
#include <thread>

#include "dist/host_communicator.h"

namespace trencadis {

using namespace std::chrono_literals;

namespace {

// What the ranks of one group share. The table needs no lock: a rank writes its own row before a meeting, others read
// it after.
struct ThreadGroup {
  explicit ThreadGroup(int size) : rows(static_cast<size_t>(size)), here(rows.size()), gone(rows.size()) {}

  struct Row {
    ConstView in, out;
    int color = 0, key = 0;
    std::shared_ptr<ThreadGroup> child;  // of split(), made by the lowest rank of a color
  };
  std::vector<Row> rows;
  std::vector<Fingerprint> fingerprints = std::vector<Fingerprint>(rows.size());

  // The meeting point.
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t meetings = 0;         // completed
  std::vector<char> here, gone;  // by rank: arrived at the next meeting; destroyed (char: no shared bits)
  size_t arrived = 0;
  std::string failure;  // of the first rank that failed
};

class ThreadCommunicator final : public HostCommunicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank, int size, CommOptions options,
                     const AbortFlag* abort)
      : HostCommunicator(rank, size, options, abort), group_(std::move(group)) {
    if (size > 1) staging_.resize(std::max<size_t>(kSmallAllReduceBytes, static_cast<size_t>(chunk_bytes())));
  }
  ~ThreadCommunicator() override {
    close();
    const std::lock_guard lock(group_->mutex);
    group_->gone[index()] = true;
    group_->changed.notify_all();
  }

  std::unique_ptr<Communicator> split(int color, int key) override;

 private:
  void agree(const Call& call) override;
  void do_all_reduce(const Call& call) override;
  void do_reduce_scatter(const Call& call) override;
  void do_all_gather(const Call& call) override;
  void do_broadcast(const Call& call) override;
  void leave(const Call& call) override { meet(call); }
  void failed(const std::string& text) override;

  void meet(const Call& call);
  void reduce_piece(const Call& call, const Pieces& pieces, bool in_rows);
  void gather_pieces(const Call& call, const Pieces& pieces, bool in_rows);

  size_t index() const { return static_cast<size_t>(rank()); }
  int64_t chunk_bytes() const { return options().chunk_elements * 4; }

  const std::shared_ptr<ThreadGroup> group_;
  std::vector<char> staging_;
};

const char* at(ConstView view, int64_t element) {
  return static_cast<const char*>(view.data) + element * size_of(view.dtype);
}
char* at(View view, int64_t element) { return static_cast<char*>(view.data) + element * size_of(view.dtype); }

void copy(void* to, const void* from, int64_t n, DType dtype) {
  if (n > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(n * size_of(dtype)));
}

}  // namespace

// -- meeting ----------------------------------------------------------------------------------------------------------

void ThreadCommunicator::meet(const Call& call) {
  ThreadGroup& group = *group_;
  std::unique_lock lock(group.mutex);
  const uint64_t meeting = group.meetings;
  const auto started = Clock::now();
  group.here[index()] = true;
  if (++group.arrived == group.rows.size()) {
    ++group.meetings;
    group.arrived = 0;
    std::fill(group.here.begin(), group.here.end(), char{0});
    group.changed.notify_all();
    return;
  }
  const auto missing = [&] {
    std::vector<int> ranks;
    for (size_t r = 0; r < group.here.size(); ++r)
      if (!group.here[r]) ranks.push_back(static_cast<int>(r));
    return ranks;
  };
  while (group.meetings == meeting) {
    if (!group.failure.empty())
      throw Error(fmt::format("{} on rank {}: {}", describe(call.fingerprint), rank(), group.failure));
    for (const int r : missing())
      if (group.gone[static_cast<size_t>(r)])
        throw Error(fmt::format("{}: rank {} waits for rank {}, which has destroyed its communicator",
                                describe(call.fingerprint), rank(), r));
    check_patience(call, started, missing);
    group.changed.wait_for(lock, 10ms);  // the abort flag notifies nobody
  }
}

void ThreadCommunicator::failed(const std::string& text) {
  const std::lock_guard lock(group_->mutex);
  if (group_->failure.empty()) group_->failure = fmt::format("rank {} failed: {}", rank(), text);
  group_->changed.notify_all();
}

void ThreadCommunicator::agree(const Call& call) {
  group_->rows[index()].in = call.in;
  group_->rows[index()].out = call.out;
  group_->fingerprints[index()] = call.fingerprint;
  meet(call);
  check_agreement(group_->fingerprints);
}

// -- collectives ------------------------------------------------------------------------------------------------------

// call.out (of reduce_scatter), or this rank's piece of it (all_reduce) = the sum of this rank's pieces on all ranks.
// Others read pieces of theirs, so this rank may overwrite its own even where it lies in the input.
void ThreadCommunicator::reduce_piece(const Call& call, const Pieces& pieces, bool in_rows) {
  const DType dtype = call.fingerprint.dtype;
  const int64_t chunk = std::max<int64_t>(1, chunk_bytes() / size_of(dtype));
  const int64_t begin = pieces.begin(rank()), count = pieces.count(rank());
  std::vector<const void*> by_rank(group_->rows.size());
  for (int64_t first = 0; first < count; first += chunk) {
    for (size_t r = 0; r < by_rank.size(); ++r)
      by_rank[r] = at(in_rows ? group_->rows[r].in : group_->rows[r].out, begin + first);
    reduce_in_rank_order(at(call.out, in_rows ? first : begin + first), by_rank, std::min(chunk, count - first), dtype,
                         call.fingerprint.op, call.accumulate, staging_.data());
  }
  count_sent(call, pieces.total - count);  // every other piece went to its rank
}

// Piece r of call.out = rank r's shard (all_gather) or its piece r (all_reduce). Nobody writes what others read here.
void ThreadCommunicator::gather_pieces(const Call& call, const Pieces& pieces, bool in_rows) {
  for (int r = 0; r < size(); ++r) {
    const ThreadGroup::Row& row = group_->rows[static_cast<size_t>(r)];
    const char* from = in_rows ? at(row.in, 0) : at(row.out, pieces.begin(r));
    copy(at(call.out, pieces.begin(r)), from, pieces.count(r), call.fingerprint.dtype);
  }
  count_sent(call, (size() - 1) * pieces.count(rank()));
}

void ThreadCommunicator::do_reduce_scatter(const Call& call) {
  reduce_piece(call, {call.in.size, call.out.size}, true);
}

void ThreadCommunicator::do_all_gather(const Call& call) { gather_pieces(call, {call.out.size, call.in.size}, true); }

void ThreadCommunicator::do_all_reduce(const Call& call) {
  const int64_t n = call.out.size;
  if (!sends_all_at_once(call)) {
    const Pieces pieces = Pieces::of_all_reduce(n, size());
    reduce_piece(call, pieces, false);
    meet(call);  // all pieces are summed
    gather_pieces(call, pieces, false);
    return;
  }
  // Everyone needs everyone's input, so the result waits in the staging buffer until all have read.
  std::vector<const void*> by_rank(group_->rows.size());
  for (size_t r = 0; r < by_rank.size(); ++r) by_rank[r] = group_->rows[r].out.data;
  reduce_in_rank_order(staging_.data(), by_rank, n, call.out.dtype, call.fingerprint.op, false, staging_.data());
  count_sent(call, (size() - 1) * n);
  meet(call);
  copy(call.out.data, staging_.data(), n, call.out.dtype);
}

void ThreadCommunicator::do_broadcast(const Call& call) {
  const int root = call.fingerprint.root;
  copy(call.out.data, group_->rows[static_cast<size_t>(root)].out.data, call.out.size, call.out.dtype);
  if (rank() == root) count_sent(call, (size() - 1) * call.out.size);
}

// -- making groups ----------------------------------------------------------------------------------------------------

std::unique_ptr<Communicator> ThreadCommunicator::split(int color, int key) {
  std::unique_ptr<Communicator> result;
  run_on_host({"split"}, [&](const Call& call) {
    if (size() == 1) {
      result = std::make_unique<ThreadCommunicator>(std::make_shared<ThreadGroup>(1), 0, 1, options(), abort_flag());
      return;
    }
    auto& rows = group_->rows;
    rows[index()].color = color;
    rows[index()].key = key;
    meet(call);
    std::vector<int> members;  // old ranks, in their new order
    for (int r = 0; r < size(); ++r)
      if (rows[static_cast<size_t>(r)].color == color) members.push_back(r);
    const auto maker = static_cast<size_t>(members.front());
    std::stable_sort(members.begin(), members.end(),
                     [&](int a, int b) { return rows[static_cast<size_t>(a)].key < rows[static_cast<size_t>(b)].key; });
    const int count = static_cast<int>(members.size());
    if (maker == index()) rows[maker].child = std::make_shared<ThreadGroup>(count);
    meet(call);
    const int new_rank = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
    result = std::make_unique<ThreadCommunicator>(rows[maker].child, new_rank, count, options(), abort_flag());
    meet(call);
    rows[index()].child.reset();
  });
  return result;
}

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size, CommOptions options,
                                                                     const AbortFlag* abort) {
  CHECK(size >= 1, "{} ranks; use at least one", size);
  const auto group = std::make_shared<ThreadGroup>(size);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::make_unique<ThreadCommunicator>(group, rank, size, options, abort));
  return ranks;
}

void run_on_threads(int ranks, const std::function<void(Communicator&)>& body, CommOptions options) {
  auto communicators = make_thread_communicators(ranks, options);
  std::mutex mutex;
  std::exception_ptr first;  // in time: the others' come of it
  std::vector<std::thread> threads;
  for (auto& communicator : communicators)
    threads.emplace_back([&] {
      try {
        body(*communicator);
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        communicator.reset();  // whoever waits for this rank must not wait for the timeout
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace trencadis
