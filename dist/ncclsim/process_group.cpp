#include "dist/ncclsim/process_group.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "runtime/check.h"
#include "runtime/cudasim/device_memory.h"
#include "runtime/cudasim/executor.h"
#include "runtime/host_streams.h"

namespace trencadis::ncclsim {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kMostRanks = 64;

// What a process waits for: a communicator to be complete, or a collective.
struct Post {
  char communicator[64] = {};
  bool joins = false;
  int32_t ranks = 0, rank = 0;
  uint64_t members = 0;  // of a collective's communicator: bit w for rank w of the world
  int64_t sequence = 0;
  CollectiveCall call;
  uint64_t in = 0, out = 0;  // from the start of the mapping
};

// One process's, in the shared mapping. It waits while posted != done; only rank 0 of the communicator ends the wait.
struct Slot {
  std::atomic<uint64_t> posted{0}, done{0};
  Post post;
  int32_t world_ranks[kMostRanks] = {};  // the answer to `joins`: by rank of the communicator
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

struct World {
  char* base = nullptr;  // the mapping: slots, then the ranks' heaps
  int rank = 0, size = 0;
  Slot* slots = nullptr;
  std::chrono::seconds patience{60};
};
World& world() {
  static World world;
  return world;
}

std::string name_of(const Post& post) {
  if (post.joins) return fmt::format("joining of a communicator of {} ranks", post.ranks);
  return fmt::format("{} #{} of communicator {}", describe(post.call), post.sequence, post.communicator);
}

// What process w waits for; false when it waits for nothing. A post that changes while it is read is read again.
bool read_post(int w, Post& post) {
  const Slot& slot = world().slots[w];
  for (;;) {
    const uint64_t posted = slot.posted.load(std::memory_order_acquire);
    if (slot.done.load(std::memory_order_acquire) == posted) return false;
    std::memcpy(&post, &slot.post, sizeof post);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot.posted.load() == posted && slot.done.load() != posted) return true;
  }
}

// Looks at all processes as rank 0 of the communicator. True, and who they are, when all its ranks are here.
bool all_here(const Post& own, std::vector<int32_t>& world_ranks) {
  const World& w = world();
  std::vector<Post> posts(static_cast<size_t>(w.size));
  uint64_t here = 0;
  int count = 0;
  world_ranks.assign(static_cast<size_t>(own.ranks), -1);
  for (int r = 0; r < w.size; ++r) {
    Post& post = posts[static_cast<size_t>(r)];
    if (!read_post(r, post)) {
      post.ranks = 0;
      continue;
    }
    if (std::strcmp(post.communicator, own.communicator) != 0 || post.joins != own.joins) continue;
    if (post.ranks != own.ranks || (!own.joins && !agree(post.call, own.call)))
      cudasim::fail(fmt::format("call #{} of communicator {} differs: rank {} calls {}, rank {} calls {}", own.sequence,
                                own.communicator, own.rank, name_of(own), post.rank, name_of(post)));
    world_ranks[static_cast<size_t>(post.rank)] = r;
    here |= uint64_t{1} << r;
    ++count;
  }
  if (count == own.ranks) return true;
  // Whoever waits elsewhere for one of those who wait here will never come.
  for (int r = 0; r < w.size && !own.joins; ++r) {
    const Post& post = posts[static_cast<size_t>(r)];
    if (post.ranks > 0 && (own.members >> r & 1) && !(here >> r & 1) && (post.members & here))
      cudasim::fail(
          fmt::format("rank {} calls {} where rank {} calls {}: communicators of the same GPUs must be used "
                      "in one order on all ranks",
                      own.rank, name_of(own), post.rank, name_of(post)));
  }
  return false;
}

// Posts, and returns when all ranks of the communicator have posted the same and rank 0 has done it.
void meet(const Post& own, const std::function<void(const std::vector<int32_t>& world_ranks)>& as_rank_0) {
  const World& w = world();
  Slot& slot = w.slots[w.rank];
  slot.post = own;
  const uint64_t number = slot.posted.load() + 1;
  slot.posted.store(number, std::memory_order_release);
  const auto started = Clock::now();
  std::vector<int32_t> world_ranks;
  for (int64_t round = 0; slot.done.load(std::memory_order_acquire) != number; ++round) {
    if (own.rank == 0 && all_here(own, world_ranks)) {
      as_rank_0(world_ranks);
      for (const int32_t r : world_ranks) {
        Slot& other = w.slots[r];
        std::copy(world_ranks.begin(), world_ranks.end(), other.world_ranks);
        other.done.store(other.posted.load(), std::memory_order_release);
      }
      return;
    }
    if (Clock::now() - started > w.patience) {
      std::string waiting;
      Post post;
      for (int r = 0; r < w.size; ++r)
        waiting += fmt::format("\n  process {}: {}", r, read_post(r, post) ? name_of(post) : "waits for nothing");
      cudasim::fail(fmt::format("nothing has moved for {} s. Process {} waits in {}.{}", w.patience.count(), w.rank,
                                name_of(own), waiting));
    }
    // Shared cores: whoever waits long looks seldom.
    if (round < 200)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(std::min<int64_t>(round, 1000)));
  }
}

class ProcessGroup final : public Group {
 public:
  ProcessGroup(std::string name, std::vector<int32_t> world_ranks)
      : name_(std::move(name)), world_ranks_(std::move(world_ranks)) {
    for (const int32_t r : world_ranks_) members_ |= uint64_t{1} << r;
  }
  int size() const override { return static_cast<int>(world_ranks_.size()); }

  ncclResult_t issue(int rank, const CollectiveCall& call, Buffers buffers, cudaStream_t stream) override {
    Post post;
    name_.copy(post.communicator, sizeof post.communicator - 1);
    post.ranks = size();
    post.rank = rank;
    post.members = members_;
    post.sequence = calls_++;
    post.call = call;
    post.in = call.count ? static_cast<uint64_t>(buffers.in - world().base) : 0;
    post.out = call.count ? static_cast<uint64_t>(buffers.out - world().base) : 0;
    cudasim::enqueue(stream, name_of(post),
                     [post] { meet(post, [&](const auto& ranks) { perform_all(post, ranks); }); });
    return ncclSuccess;
  }
  void abort(int) override {}  // what was issued has been done
  std::string error() const override { return {}; }

 private:
  // The other processes' memory, as it lies in this one's mapping.
  static void perform_all(const Post& own, const std::vector<int32_t>& world_ranks) {
    std::vector<Buffers> by_rank;
    for (const int32_t r : world_ranks) {
      const Post& post = world().slots[r].post;
      by_rank.push_back({world().base + post.in, world().base + post.out});
    }
    perform(own.call, by_rank, [](int, const std::function<void()>& work) { work(); });
  }

  const std::string name_;
  const std::vector<int32_t> world_ranks_;
  uint64_t members_ = 0;
  int64_t calls_ = 0;
};

}  // namespace

// The mapping has no name: the others open it through rank 0's entry in /proc, and it ends with the last of them.
// (MPI_Win_allocate_shared puts its memory into /dev/shm, which has 64 MiB in a container.)
void share_device_memory(Communicator& comm, size_t bytes_per_rank) {
  World& w = world();
  CHECK(!w.base, "share_device_memory() is called twice");
  CHECK(comm.size() <= kMostRanks, "{} processes share device memory; use at most {}", comm.size(), kMostRanks);
  w.rank = comm.rank();
  w.size = comm.size();
  if (const char* text = std::getenv("TRENCADIS_SIM_PATIENCE"))
    w.patience = std::chrono::seconds(std::max(1, std::atoi(text)));
  const size_t slots = (sizeof(Slot) * kMostRanks + 4095) / 4096 * 4096;
  const size_t heap = (bytes_per_rank + 4095) / 4096 * 4096;
  const size_t bytes = slots + heap * static_cast<size_t>(w.size);

  InlineStream stream("host");
  int64_t owner[2] = {getpid(), -1};
  int file = -1;
  if (w.rank == 0) {
    file = memfd_create("trencadis-device-memory", MFD_CLOEXEC);
    CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0, "{} bytes of shared memory: {}", bytes,
          std::strerror(errno));
    owner[1] = file;
  }
  comm.broadcast(View(owner, 2), 0, stream, {"device memory"});
  if (w.rank != 0) {
    const std::string path = fmt::format("/proc/{}/fd/{}", owner[0], owner[1]);
    file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    CHECK(file >= 0, "{}: {}; the ranks of a simulated job must run on one host, as one user", path,
          std::strerror(errno));
  }
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  CHECK(base != MAP_FAILED, "mapping of {} bytes of shared memory: {}", bytes, std::strerror(errno));
  w.base = static_cast<char*>(base);
  w.slots = reinterpret_cast<Slot*>(w.base);
  new (&w.slots[w.rank]) Slot;
  comm.barrier({"device memory"});  // all have it, and all slots are made
  close(file);
  cudasim::place_device_heap(w.base + slots + heap * static_cast<size_t>(w.rank), heap);
  cudasim::set_schedule(cudasim::Schedule::parse("eager"));
}

std::string unique_name(int number) { return fmt::format("{}-{}", getpid(), number); }

std::shared_ptr<Group> join_process_group(const ncclUniqueId& id, int ranks, int rank, int) {
  const World& w = world();
  if (!w.base) return nullptr;
  CHECK(rank >= 0 && rank < ranks && ranks <= w.size, "rank {} of {} in a world of {} processes", rank, ranks, w.size);
  Post post;
  post.joins = true;
  std::string(id.internal).copy(post.communicator, sizeof post.communicator - 1);
  post.ranks = ranks;
  post.rank = rank;
  meet(post, [](const auto&) {});
  const int32_t* answer = w.slots[w.rank].world_ranks;
  return std::make_shared<ProcessGroup>(post.communicator, std::vector<int32_t>(answer, answer + ranks));
}

}  // namespace trencadis::ncclsim
