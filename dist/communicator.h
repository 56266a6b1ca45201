// Communicator: a group of ranks and the collectives among them, on raw buffers and a stream.
//
// A collective is enqueued on the stream and returns at once on streams that have a worker or a device; its buffers
// must stay alive and untouched until an event recorded after it has happened. All ranks of a communicator call the
// same collectives in the same order, from one stream at a time: a communicator is an ordered channel (use split() or
// duplicate() to get a second, independent one).
//
// Order of sums: reductions add in rank order, ((acc + x_0) + x_1) + ..., and never scale. So their bits depend on the
// number of ranks only.
// Errors: every collective carries a sequence number and a fingerprint (kind, label, count, type); ranks that disagree
// get an Error that names the ranks and both fingerprints instead of a hang. A collective that makes no progress for
// CommOptions::timeout_seconds fails with an Error that names it.
// A communicator of size 1 moves nothing and counts nothing; reduce_scatter and all_gather then are local copies.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/context.h"
#include "runtime/view.h"

namespace trencadis {

enum class ReduceOp { sum, max };
enum class CollectiveKind { all_reduce, reduce_scatter, all_gather, broadcast, barrier };
inline constexpr int kCollectiveKinds = 5;
const char* name_of(CollectiveKind kind);

// What a collective is for; each is counted apart. `training`: gradients and parameters inside a step. `control`: token
// count, loss, norm, flags of a step. `other`: metrics, fingerprints, evaluation, saving, shutdown.
enum class Traffic { training, control, other };
inline constexpr int kTrafficClasses = 3;

// Who asks, for errors, traces and fingerprints: "reduce gradients of h.3".
struct CollectiveLabel {
  std::string text;
  Traffic traffic = Traffic::other;
};

// Counted where data is sent. elements_sent and bytes_sent: by this rank, the sum over peers.
struct CommCounters {
  struct Count {
    int64_t calls = 0, elements_sent = 0, bytes_sent = 0;
  };
  Count count[kTrafficClasses][kCollectiveKinds];

  const Count& at(Traffic traffic, CollectiveKind kind) const {
    return count[static_cast<int>(traffic)][static_cast<int>(kind)];
  }
  Count& at(Traffic traffic, CollectiveKind kind) { return count[static_cast<int>(traffic)][static_cast<int>(kind)]; }

  CommCounters& operator+=(const CommCounters& other);
  CommCounters operator-(const CommCounters& earlier) const;  // what was sent since
};

struct CommOptions {
  double timeout_seconds = 300;
  // Elements of a reduction that are exchanged at a time (256 KiB of f32), and the most elements of one message. Tests
  // lower both, so that splitting is exercised by small buffers.
  int64_t chunk_elements = 64 * 1024;
  int64_t message_elements = int64_t{1} << 29;
  // For tests: every collective sleeps for delay_us before and after its work, plus up to as much
  // again drawn from seed.
  int delay_us = 0;
  uint64_t delay_seed = 0;
};

// Set from outside (a signal, an error elsewhere in the rank): collectives that wait give up with an Error.
using AbortFlag = std::atomic<bool>;

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // A communicator of the ranks that give the same color, ordered by key, then rank. Collective; blocks the host.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;
  // An independent channel among the same ranks. Collective; blocks the host.
  std::unique_ptr<Communicator> duplicate() { return split(0, rank()); }

  // data_i = op over ranks of data_i, in place. Types: f32, bf16, f64, i64.
  virtual void all_reduce(View data, ReduceOp op, Stream& stream, CollectiveLabel label) = 0;
  // `in` holds size() pieces of shard.size elements. shard = [shard +] sum over ranks, in rank order, of their piece
  // rank(). `shard` may be piece rank() of `in` itself (then accumulate must be false). in is not changed otherwise.
  virtual void reduce_scatter(View in, View shard, bool accumulate, Stream& stream, CollectiveLabel label) = 0;
  // out, of size() pieces of shard.size elements, receives every rank's shard; shard may be piece rank() of out itself.
  virtual void all_gather(ConstView shard, View out, Stream& stream, CollectiveLabel label) = 0;
  // data of rank root goes to all.
  virtual void broadcast(View data, int root, Stream& stream, CollectiveLabel label) = 0;
  // Blocks the host until all ranks are here.
  virtual void barrier(CollectiveLabel label) = 0;

  virtual CommCounters counters() const = 0;  // of this communicator alone
  // Memory of category communication that it holds from its construction on: a function of its options and size().
  virtual int64_t staging_bytes() const { return 0; }
};

}  // namespace trencadis
