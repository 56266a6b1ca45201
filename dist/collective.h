// What every backend of Communicator needs and none should invent anew: the fingerprint that makes ranks agree, the
// order of sums, how an all_reduce is cut into pieces, and the delays that tests inject.
//
// Invariants: the bits of a reduction depend on the ranks' values and their number alone, not on chunks, delays or
// backend; so all backends sum through reduce_in_rank_order(). All ranks that see the same fingerprints come to the
// same verdict with the same words.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "dist/communicator.h"

namespace trencadis {

// -- agreement --------------------------------------------------------------------------------------------------------

// What a rank is about to do. It travels as bytes between processes of one binary, hence plain members.
struct Fingerprint {
  int64_t sequence = 0;     // number of this call on its communicator, from 0
  int64_t count = 0;        // elements: of the data, or of one shard
  uint64_t label_hash = 0;  // of the whole label; the text below may be cut
  CollectiveKind kind = CollectiveKind::barrier;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int32_t root = 0;
  char label[72] = {};  // ends with 0
};

Fingerprint make_fingerprint(int64_t sequence, CollectiveKind kind, const std::string& label, DType dtype = DType::f32,
                             int64_t count = 0, ReduceOp op = ReduceOp::sum, int root = 0);

// Do two ranks mean the same call?
bool agree(const Fingerprint& a, const Fingerprint& b);

// reduce_scatter "reduce gradients of h.3" (#17, 4096 f32, sum)
std::string describe(const Fingerprint& fingerprint);

// Throws an Error that names all ranks and what each of them called, unless all fingerprints agree; by_rank[r] is rank
// r's. Every rank holds the same table, so every rank throws the same text.
void check_agreement(std::span<const Fingerprint> by_rank);

// "rank 2", "ranks 0, 1 and 3"
std::string name_ranks(std::span<const int> ranks);

// What one rank can check of its own call; throws Error with the label.
void check_all_reduce(ConstView data, const std::string& label);
void check_reduce_scatter(ConstView in, ConstView shard, bool accumulate, int rank, int size, const std::string& label);
void check_all_gather(ConstView shard, ConstView out, int rank, int size, const std::string& label);
void check_broadcast(int root, int size, const std::string& label);

// -- arithmetic -------------------------------------------------------------------------------------------------------

constexpr bool is_reducible(DType dtype) { return dtype != DType::i32; }

// dst_i = a_i op b_i, i < n. dst may be a or b itself, but not overlap them otherwise. bf16 is added in f32 and
// rounded. A maximum with a NaN is NaN: it is also how ranks learn that one of them is not finite.
void reduce_into(void* dst, const void* a, const void* b, int64_t n, DType dtype, ReduceOp op);

// dst = by_rank[0] op by_rank[1] op ..., or ((dst op by_rank[0]) op by_rank[1]) ... when accumulate; from left to
// right. dst may be one of by_rank (then accumulate must be false). Intermediate sums go to scratch (n elements), which
// may be by_rank[0] or [1]: nobody needs those after the first sum.
void reduce_in_rank_order(void* dst, std::span<const void* const> by_rank, int64_t n, DType dtype, ReduceOp op,
                          bool accumulate, void* scratch);

// -- cutting ----------------------------------------------------------------------------------------------------------

// An all_reduce of at most this many bytes may send everything to everybody: one message time instead of two.
inline constexpr int64_t kSmallAllReduceBytes = 16 * 1024;

// `total` elements cut into one piece of `each` per rank; the last pieces may be shorter, or empty.
struct Pieces {
  int64_t total = 0, each = 0;

  // The pieces of a large all_reduce start at multiples of 4 elements, so that vectors stay aligned.
  static Pieces of_all_reduce(int64_t total, int ranks) {
    const int64_t each = (total + ranks - 1) / ranks;
    return {total, (each + 3) / 4 * 4};
  }
  int64_t begin(int rank) const { return std::min(total, rank * each); }
  int64_t count(int rank) const { return std::min(total, (rank + int64_t{1}) * each) - begin(rank); }
};

// Calls message(first, n) for [0, count) cut into runs of at most `limit` elements (an MPI count is an int).
template <typename F>
void for_each_message(int64_t count, int64_t limit, F&& message) {
  for (int64_t first = 0; first < count; first += limit) message(first, std::min(limit, count - first));
}

// -- tests ------------------------------------------------------------------------------------------------------------

// Sleeps as CommOptions::delay_us asks for; `place` tells the delay before the work (0) from the one after it (1).
void inject_delay(const CommOptions& options, int rank, int64_t sequence, int place);

}  // namespace trencadis
