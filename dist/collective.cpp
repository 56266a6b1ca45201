#include "dist/collective.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/random.h"

namespace trencadis {

// -- agreement --------------------------------------------------------------------------------------------------------

Fingerprint make_fingerprint(int64_t sequence, CollectiveKind kind, const std::string& label, DType dtype,
                             int64_t count, ReduceOp op, int root) {
  Fingerprint fingerprint;
  fingerprint.sequence = sequence;
  fingerprint.count = count;
  fingerprint.label_hash = hash_name(label);
  fingerprint.kind = kind;
  fingerprint.dtype = dtype;
  fingerprint.op = op;
  fingerprint.root = root;
  std::memcpy(fingerprint.label, label.data(), std::min(label.size(), sizeof fingerprint.label - 1));
  return fingerprint;
}

bool agree(const Fingerprint& a, const Fingerprint& b) {
  return a.sequence == b.sequence && a.count == b.count && a.label_hash == b.label_hash && a.kind == b.kind &&
         a.dtype == b.dtype && a.op == b.op && a.root == b.root;
}

std::string describe(const Fingerprint& f) {
  std::string text = fmt::format("{} \"{}\" (#{}", name_of(f.kind), f.label, f.sequence);
  if (f.kind != CollectiveKind::barrier) text += fmt::format(", {} {}", f.count, name_of(f.dtype));
  if (f.kind == CollectiveKind::all_reduce || f.kind == CollectiveKind::reduce_scatter)
    text += f.op == ReduceOp::sum ? ", sum" : ", max";
  if (f.kind == CollectiveKind::broadcast) text += fmt::format(", root {}", f.root);
  return text + ")";
}

std::string name_ranks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? " " : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return text;
}

void check_agreement(std::span<const Fingerprint> by_rank) {
  // The different calls, each with the ranks that make it, in order of their lowest rank.
  std::vector<std::pair<Fingerprint, std::vector<int>>> calls;
  for (int rank = 0; rank < static_cast<int>(by_rank.size()); ++rank) {
    const Fingerprint& mine = by_rank[static_cast<size_t>(rank)];
    const auto same =
        std::find_if(calls.begin(), calls.end(), [&](const auto& call) { return agree(call.first, mine); });
    if (same != calls.end())
      same->second.push_back(rank);
    else
      calls.push_back({mine, {rank}});
  }
  if (calls.size() <= 1) return;
  std::string text = "the ranks disagree about their next collective: ";
  for (size_t i = 0; i < calls.size(); ++i)
    text += fmt::format("{}{}: {}", i ? "; " : "", name_ranks(calls[i].second), describe(calls[i].first));
  throw Error(text +
              ". Every rank must make the same calls in the same order: give all ranks the same flags, and look "
              "for a unit that only some of them run");
}

namespace {
// The small side (shard) of a collective may lie in the big one (all) only as this rank's own piece.
void check_shard(const std::string& label, ConstView all, ConstView shard, int rank, int size) {
  CHECK(all.dtype == shard.dtype, "\"{}\" on rank {}: {} pieces and a {} shard", label, rank, name_of(all.dtype),
        name_of(shard.dtype));
  CHECK(all.size == shard.size * size, "\"{}\" on rank {}: {} elements are not {} pieces of {}", label, rank, all.size,
        size, shard.size);
  const auto *a = static_cast<const char*>(all.data), *s = static_cast<const char*>(shard.data);
  const bool apart = s + shard.bytes() <= a || a + all.bytes() <= s;
  CHECK(apart || s == a + rank * shard.bytes(), "\"{}\" on rank {}: the shard overlaps the pieces, but is not piece {}",
        label, rank, rank);
}
}  // namespace

void check_all_reduce(ConstView data, const std::string& label) {
  CHECK(is_reducible(data.dtype), "all_reduce \"{}\" of {}; the types are f32, bf16, f64, i64", label,
        name_of(data.dtype));
}

void check_reduce_scatter(ConstView in, ConstView shard, bool accumulate, int rank, int size,
                          const std::string& label) {
  CHECK(is_reducible(in.dtype), "reduce_scatter \"{}\" of {}; the types are f32, bf16, f64, i64", label,
        name_of(in.dtype));
  check_shard(label, in, shard, rank, size);
  const bool in_place = shard.size > 0 && shard.data == static_cast<const char*>(in.data) + rank * shard.bytes();
  CHECK(!(in_place && accumulate), "reduce_scatter \"{}\": a shard inside its own input cannot accumulate", label);
}

void check_all_gather(ConstView shard, ConstView out, int rank, int size, const std::string& label) {
  check_shard(label, out, shard, rank, size);
}

void check_broadcast(int root, int size, const std::string& label) {
  CHECK(root >= 0 && root < size, "broadcast \"{}\" from rank {} of {}", label, root, size);
}

// -- arithmetic -------------------------------------------------------------------------------------------------------

namespace {

struct Sum {
  template <typename T>
  T operator()(T a, T b) const {
    return a + b;
  }
};

struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return (b > a || b != b) ? b : a;
  }  // b != b: NaN wins from either side
};

// ivdep: dst equal to a or b carries nothing from one element to the next, which the compiler cannot know.
template <typename T, typename Op>
void reduce_loop(T* dst, const T* a, const T* b, int64_t n, Op op) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dst[i] = op(a[i], b[i]);
}

template <typename Op>
void reduce_loop(bf16* dst, const bf16* a, const bf16* b, int64_t n, Op op) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dst[i] = bf16(op(static_cast<float>(a[i]), static_cast<float>(b[i])));
}

}  // namespace

void reduce_into(void* dst, const void* a, const void* b, int64_t n, DType dtype, ReduceOp op) {
  CHECK(is_reducible(dtype), "a reduction of {}; the types are f32, bf16, f64, i64", name_of(dtype));
  dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* out = static_cast<T*>(dst);
    const auto *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
    if (op == ReduceOp::sum)
      reduce_loop(out, x, y, n, Sum{});
    else
      reduce_loop(out, x, y, n, Max{});
  });
}

void reduce_in_rank_order(void* dst, std::span<const void* const> by_rank, int64_t n, DType dtype, ReduceOp op,
                          bool accumulate, void* scratch) {
  if (accumulate) {
    for (const void* x : by_rank) reduce_into(dst, dst, x, n, dtype, op);
    return;
  }
  // dst is written by the last sum only: it may be a later rank's contribution, which is still needed until then.
  const void* sum = by_rank[0];
  for (size_t rank = 1; rank < by_rank.size(); ++rank) {
    void* out = rank + 1 == by_rank.size() ? dst : scratch;
    reduce_into(out, sum, by_rank[rank], n, dtype, op);
    sum = out;
  }
  if (by_rank.size() == 1 && sum != dst) std::memcpy(dst, sum, static_cast<size_t>(n * size_of(dtype)));
}

// -- tests ------------------------------------------------------------------------------------------------------------

void inject_delay(const CommOptions& options, int rank, int64_t sequence, int place) {
  if (options.delay_us <= 0) return;
  const uint64_t key = random_key(options.delay_seed, static_cast<uint64_t>(rank), static_cast<uint64_t>(sequence),
                                  static_cast<uint64_t>(place));
  const auto more = static_cast<int64_t>(key % (static_cast<uint64_t>(options.delay_us) + 1));
  std::this_thread::sleep_for(std::chrono::microseconds(options.delay_us + more));
}

}  // namespace trencadis
