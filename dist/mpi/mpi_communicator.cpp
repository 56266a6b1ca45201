// Every collective is two steps. First all ranks send each other their fingerprints; only when they agree does data
// move, so that a wrong count can neither overwrite memory nor leave a message that nobody takes. Then messages go
// directly from each rank to each other rank: with the few ranks of one host that is the fewest copies.
//
// Reductions arrive in staging buffers, a chunk from every peer, and are added from there in rank order. kRounds chunks
// are in flight, so that the wire is busy while one is added; a chunk is small enough to be added in the cache.
#include "dist/mpi/mpi_communicator.h"

#include <mpi.h>

#include <array>
#include <cstring>

#include "dist/host_communicator.h"
#include "dist/mpi/mpi_environment.h"
#include "dist/mpi/requests.h"
#include "dist/on_all_ranks.h"
#include "runtime/storage.h"

namespace trencadis {

namespace {

constexpr int kFingerprintTag = 1, kDataTag = 2;
constexpr int kRounds = 4;
constexpr int64_t kMaxStagingBytes = 4 << 20;

MPI_Datatype mpi_type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return MPI_FLOAT;
    case DType::bf16:
      return MPI_UINT16_T;  // moved, never added, by MPI
    case DType::i32:
      return MPI_INT32_T;
    case DType::i64:
      return MPI_INT64_T;
    default:
      return MPI_DOUBLE;
  }
}

class MpiCommunicator final : public HostCommunicator {
 public:
  // Takes comm over.
  MpiCommunicator(MPI_Comm comm, int rank, int size, CommOptions options, const AbortFlag* abort, Context* context);
  ~MpiCommunicator() override;

  std::unique_ptr<Communicator> split(int color, int key) override;
  int64_t staging_bytes() const override { return counted_ ? counted_->bytes() : 0; }

 private:
  void agree(const Call& call) override;
  void do_all_reduce(const Call& call) override;
  void do_reduce_scatter(const Call& call) override;
  void do_all_gather(const Call& call) override;
  void do_broadcast(const Call& call) override;

  void send(const Call& call, ConstView data, int peer, Requests& requests);
  void receive(View data, int peer, Requests& requests);
  void wait(const Call& call, Requests& requests);

  void all_reduce_small(const Call& call);
  void reduce_pieces(const Call& call, ConstView in, const Pieces& pieces, View mine);
  void gather_pieces(const Call& call, ConstView mine, View out, const Pieces& pieces);

  // The peers in the order rank + 1, rank + 2, ...: so that not all ranks talk to the same one at first.
  int peer(int step) const { return (rank() + step) % size(); }
  char* staging(int round, int from) const { return staging_ + (round % kRounds * size() + from) * chunk_bytes_; }

  MPI_Comm comm_;
  Context* const context_;
  int64_t chunk_bytes_ = 0;
  char* staging_ = nullptr;            // kRounds * size() chunks, in one of the next two
  std::shared_ptr<Storage> counted_;   // with a context
  std::unique_ptr<char[]> uncounted_;  // without
  std::vector<Fingerprint> fingerprints_;
};

std::unique_ptr<Communicator> make(MPI_Comm comm, CommOptions options, const AbortFlag* abort, Context* context) {
  int rank = 0, size = 1;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return std::make_unique<MpiCommunicator>(comm, rank, size, options, abort, context);
}

MpiCommunicator::MpiCommunicator(MPI_Comm comm, int rank, int size, CommOptions options, const AbortFlag* abort,
                                 Context* context)
    : HostCommunicator(rank, size, options, abort), comm_(comm), context_(context) {
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  if (size == 1) return;
  fingerprints_.resize(static_cast<size_t>(size));
  // Many ranks get smaller chunks, but one must hold a small all_reduce. Multiples of 64 bytes suit every type.
  const int64_t affordable = std::max(kMaxStagingBytes / (kRounds * size), kSmallAllReduceBytes);
  chunk_bytes_ = std::max(std::min(options.chunk_elements * 4, affordable), kSmallAllReduceBytes) / 64 * 64;
  const int64_t bytes = kRounds * size * chunk_bytes_;
  if (context) {
    counted_ = Storage::create(*context, bytes, MemoryCategory::communication, "staging of reductions");
    staging_ = static_cast<char*>(counted_->data());
  } else {
    uncounted_ = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(bytes));
    staging_ = uncounted_.get();
  }
}

MpiCommunicator::~MpiCommunicator() {
  close();
  // Messages of a failed collective may still be on their way: its MPI communicator is never freed, so that MPI cannot
  // give its number, and with it those messages, to another one. MPI_Comm_free may also wait for ranks that are gone.
  if (has_failed() || (abort_flag() && *abort_flag())) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Comm_free(&comm_);
}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  CHECK(color >= 0, "split with color {}; colors start at 0", color);
  std::unique_ptr<Communicator> result;
  run_on_host({"split"}, [&](const Call&) {
    MPI_Comm part = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(comm_, color, key, &part), "MPI_Comm_split");
    result = make(part, options(), abort_flag(), context_);
  });
  return result;
}

// -- messages ---------------------------------------------------------------------------------------------------------

void MpiCommunicator::send(const Call& call, ConstView data, int peer, Requests& requests) {
  for_each_message(data.size, options().message_elements, [&](int64_t first, int64_t n) {
    check_mpi(MPI_Isend(data.slice(first, n).data, static_cast<int>(n), mpi_type_of(data.dtype), peer, kDataTag, comm_,
                        requests.add(peer)),
              "MPI_Isend");
  });
  count_sent(call, data.size);
}

void MpiCommunicator::receive(View data, int peer, Requests& requests) {
  for_each_message(data.size, options().message_elements, [&](int64_t first, int64_t n) {
    check_mpi(MPI_Irecv(data.slice(first, n).data, static_cast<int>(n), mpi_type_of(data.dtype), peer, kDataTag, comm_,
                        requests.add(peer)),
              "MPI_Irecv");
  });
}

void MpiCommunicator::wait(const Call& call, Requests& requests) {
  Backoff backoff;
  while (!requests.empty()) {
    if (requests.test()) {
      backoff.reset();
      continue;
    }
    backoff.pause();
    check_patience(call, backoff.start(), [&] { return requests.peers(); });
  }
}

void MpiCommunicator::agree(const Call& call) {
  const Fingerprint& mine = fingerprints_[static_cast<size_t>(rank())] = call.fingerprint;
  Requests requests;
  for (int step = 1; step < size(); ++step) {
    const int to = peer(step), from = peer(size() - step);
    check_mpi(MPI_Irecv(&fingerprints_[static_cast<size_t>(from)], sizeof(Fingerprint), MPI_BYTE, from, kFingerprintTag,
                        comm_, requests.add(from)),
              "MPI_Irecv");
    check_mpi(MPI_Isend(&mine, sizeof(Fingerprint), MPI_BYTE, to, kFingerprintTag, comm_, requests.add(to)),
              "MPI_Isend");
  }
  wait(call, requests);
  check_agreement(fingerprints_);
}

// -- pieces -----------------------------------------------------------------------------------------------------------

// mine [+]= the sum over ranks of their piece rank(). mine may be that piece of `in`: the others get other pieces.
void MpiCommunicator::reduce_pieces(const Call& call, ConstView in, const Pieces& pieces, View mine) {
  const DType dtype = in.dtype;
  const int64_t limit = std::min(options().chunk_elements * 4, chunk_bytes_);
  const int64_t chunk = std::max<int64_t>(1, limit / size_of(dtype));
  const int64_t rounds = (pieces.each + chunk - 1) / chunk;
  const auto chunk_of = [&](int piece, int64_t round) {  // empty where a piece is shorter than the others
    return std::clamp<int64_t>(pieces.count(piece) - round * chunk, 0, chunk);
  };
  std::array<Requests, kRounds> requests;
  const auto start = [&](int64_t round) {
    Requests& slot = requests[static_cast<size_t>(round % kRounds)];
    for (int step = 1; step < size(); ++step) {
      const int to = peer(step), from = peer(size() - step);
      receive(View(staging(static_cast<int>(round % kRounds), from), dtype, chunk_of(rank(), round)), from, slot);
      if (const int64_t n = chunk_of(to, round)) send(call, in.slice(pieces.begin(to) + round * chunk, n), to, slot);
    }
  };

  for (int64_t round = 0; round < std::min<int64_t>(rounds, kRounds); ++round) start(round);
  std::vector<const void*> by_rank(static_cast<size_t>(size()));
  for (int64_t round = 0; round < rounds; ++round) {
    wait(call, requests[static_cast<size_t>(round % kRounds)]);
    if (const int64_t n = chunk_of(rank(), round)) {
      for (int r = 0; r < size(); ++r) by_rank[static_cast<size_t>(r)] = staging(static_cast<int>(round % kRounds), r);
      by_rank[static_cast<size_t>(rank())] = in.slice(pieces.begin(rank()) + round * chunk, n).data;
      reduce_in_rank_order(mine.slice(round * chunk, n).data, by_rank, n, dtype, call.fingerprint.op, call.accumulate,
                           staging(static_cast<int>(round % kRounds), rank() == 0 ? 1 : 0));
    }
    if (round + kRounds < rounds) start(round + kRounds);
  }
}

// Piece r of out = rank r's `mine`, which may be piece rank() of out.
void MpiCommunicator::gather_pieces(const Call& call, ConstView mine, View out, const Pieces& pieces) {
  Requests requests;
  for (int step = 1; step < size(); ++step) {
    const int to = peer(step), from = peer(size() - step);
    receive(out.slice(pieces.begin(from), pieces.count(from)), from, requests);
    send(call, mine, to, requests);
  }
  View own = out.slice(pieces.begin(rank()), mine.size);
  if (mine.size > 0 && own.data != mine.data) std::memcpy(own.data, mine.data, static_cast<size_t>(mine.bytes()));
  wait(call, requests);
}

// -- collectives ------------------------------------------------------------------------------------------------------

void MpiCommunicator::do_reduce_scatter(const Call& call) {
  reduce_pieces(call, call.in, {call.in.size, call.out.size}, call.out);
}

void MpiCommunicator::do_all_gather(const Call& call) {
  gather_pieces(call, call.in, call.out, {call.out.size, call.in.size});
}

void MpiCommunicator::do_all_reduce(const Call& call) {
  if (sends_all_at_once(call)) return all_reduce_small(call);
  const Pieces pieces = Pieces::of_all_reduce(call.out.size, size());
  const View mine = call.out.slice(pieces.begin(rank()), pieces.count(rank()));
  reduce_pieces(call, call.out, pieces, mine);
  gather_pieces(call, mine, call.out, pieces);
}

// Everybody sends everything to everybody, and adds for itself.
void MpiCommunicator::all_reduce_small(const Call& call) {
  Requests requests;
  std::vector<const void*> by_rank(static_cast<size_t>(size()), call.out.data);
  for (int step = 1; step < size(); ++step) {
    const int to = peer(step), from = peer(size() - step);
    receive(View(staging(0, from), call.out.dtype, call.out.size), from, requests);
    send(call, call.out, to, requests);
    by_rank[static_cast<size_t>(from)] = staging(0, from);
  }
  wait(call, requests);
  reduce_in_rank_order(call.out.data, by_rank, call.out.size, call.out.dtype, call.fingerprint.op, false,
                       staging(0, rank() == 0 ? 1 : 0));
}

void MpiCommunicator::do_broadcast(const Call& call) {
  Requests requests;
  const int root = call.fingerprint.root;
  if (rank() != root) receive(call.out, root, requests);
  for (int step = 1; rank() == root && step < size(); ++step) send(call, call.out, peer(step), requests);
  wait(call, requests);
}

}  // namespace

std::unique_ptr<Communicator> make_mpi_world(CommOptions options, const AbortFlag* abort, Context* context) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  return make(comm, options, abort, context);
}

void run_on_mpi(const std::function<void(Communicator&)>& body, CommOptions options) {
  MpiEnvironment mpi;
  try {
    body(*make_mpi_world(options));
  } catch (const std::exception& error) {
    if (mpi.size() == 1 || dynamic_cast<const AgreedMark*>(&error)) throw;
    fmt::print(stderr, "rank {}: {}\n", mpi.rank(), error.what());
    mpi.abort(1);
  }
}

}  // namespace trencadis
