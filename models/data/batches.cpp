#include "models/data/batches.h"

#include <algorithm>
#include <bit>

#include "runtime/check.h"
#include "runtime/random.h"

namespace trencadis {

Permutation::Permutation(int64_t n, uint64_t key) : n_(static_cast<uint64_t>(n)), key_(key) {
  CHECK(n > 0, "a permutation of {} elements was asked for", n);
  half_bits_ = (std::bit_width(n_ - 1) + 1) / 2;
}

int64_t Permutation::operator()(int64_t i) const {
  CHECK(i >= 0 && static_cast<uint64_t>(i) < n_, "element {} of a permutation of {}", i, n_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t x = static_cast<uint64_t>(i);
  do {
    uint64_t left = x >> half_bits_, right = x & mask;
    for (int round = 0; round < 6; ++round) {
      const uint64_t next = left ^ (random_key(key_, round, right) & mask);
      left = right;
      right = next;
    }
    x = (left << half_bits_) | right;
  } while (x >= n_);
  return static_cast<int64_t>(x);
}

WindowOrder::WindowOrder(int64_t tokens, int64_t T, uint64_t seed, bool shuffled)
    : T_(T), windows_((tokens - 1) / T), slack_((tokens - 1) % T), seed_(seed), shuffled_(shuffled) {
  CHECK(windows_ > 0, "{} tokens hold no window of {}", tokens, T + 1);
}

int64_t WindowOrder::begin_of(int64_t sample) const {
  CHECK(sample >= 0, "sample {} was asked for", sample);
  if (!shuffled_) return sample < windows_ ? sample * T_ : -1;
  const auto epoch = static_cast<uint64_t>(sample / windows_);
  const Permutation order(windows_, random_key(seed_, hash_name("data/order"), epoch));
  const uint64_t shift = random_key(seed_, hash_name("data/shift"), epoch) % static_cast<uint64_t>(slack_ + 1);
  return order(sample % windows_) * T_ + static_cast<int64_t>(shift);
}

namespace {

void require_one_window(const TokenRange& range, int64_t T) {
  if (range.size() > T) return;
  const bool possible = range.size() >= 2;
  throw DataError(fmt::format(
      "{}: {} tokens are shorter than one sequence, which needs {} (--block-size {} and one more); give more text{}{}",
      range.what, range.size(), T + 1, T, possible ? fmt::format(" or --block-size {} or less", range.size() - 1) : "",
      range.begin > 0 ? " or --val-data" : ""));
}

}  // namespace

Batches::Batches(TokenRange range, int64_t T, int64_t vocab_size, WindowOrder order)
    : range_(std::move(range)), T_(T), vocab_size_(vocab_size), order_(order) {}

Batches Batches::training(TokenRange range, int64_t T, int64_t vocab_size, uint64_t seed) {
  require_one_window(range, T);
  const WindowOrder order = WindowOrder::shuffled(range.size(), T, seed);
  return {std::move(range), T, vocab_size, order};
}

Batches Batches::validation(TokenRange range, int64_t T, int64_t vocab_size) {
  require_one_window(range, T);
  const WindowOrder order = WindowOrder::sequential(range.size(), T);
  return {std::move(range), T, vocab_size, order};
}

void Batches::fill(int64_t first_sample, int64_t B, int32_t* ids, int32_t* targets) const {
  std::vector<int32_t> window(static_cast<size_t>(T_ + 1));  // the first token is only read, the last only predicted
  for (int64_t b = 0; b < B; ++b, ids += T_, targets += T_) {
    const int64_t begin = order_.begin_of(first_sample + b);
    if (begin < 0) {
      std::fill_n(ids, T_, 0);
      std::fill_n(targets, T_, -1);
      continue;
    }
    range_.files->read(range_.begin + begin, T_ + 1, vocab_size_, window.data());
    std::copy_n(window.data(), T_, ids);
    std::copy_n(window.data() + 1, T_, targets);
  }
}

}  // namespace trencadis
