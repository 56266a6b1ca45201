// Batches: which tokens sample number s is, for any s, without any state.
//
// Why: a generator that walks through the data would have to be saved, and moved between ranks when their number
// changes. Here a sample is a function of (seed, s), s counted over the whole training. A checkpoint keeps one number,
// samples consumed, and goes on with the same data at any number of ranks. Micro-batch m of a step that begins at
// sample S0 has the samples S0 + m*B ... S0 + m*B + B-1, m = a*W + r being rank r's a-th (promise 1).
//
// Training, n tokens, windows of T + 1 (T inputs, T targets, shifted by one):
//   windows per epoch   w = floor((n - 1) / T), neighbours share one token, so that each token but one is a target once
//   epoch of s          e = s div w;   its place in it: i = s mod w
//   window              perm_e(i), perm_e a bijection of [0, w) drawn anew in each epoch
//   its first token     perm_e(i) * T + shift_e, shift_e drawn from [0, slack], slack = (n - 1) - w * T, the tokens
//                       that are left over; without it the last ones would never be seen
// Validation: window s, no shuffle, no shift; behind the last window there is nothing (targets -1), so that a last
// round of ranks that is not full counts no window twice.
//
// Invariants a change must keep: every window of an epoch is used exactly once; all ranks count the same samples, so
// none runs out before another; 64-bit throughout.
#pragma once

#include <cstdint>

#include "models/data/token_files.h"

namespace trencadis {

// A bijection of [0, n), drawn by a key: element i of a shuffled row without making the row.
// A Feistel network on the next 4^k >= n numbers; a value that falls behind n is sent through again ("cycle walking",
// Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002), fewer than four times on average.
class Permutation {
 public:
  Permutation(int64_t n, uint64_t key);
  int64_t operator()(int64_t i) const;

 private:
  uint64_t n_, key_;
  int half_bits_ = 0;
};

// Where windows begin: the arithmetic above, for any number of tokens.
class WindowOrder {
 public:
  // `tokens` > T.
  static WindowOrder shuffled(int64_t tokens, int64_t T, uint64_t seed) { return {tokens, T, seed, true}; }
  static WindowOrder sequential(int64_t tokens, int64_t T) { return {tokens, T, 0, false}; }

  int64_t windows() const { return windows_; }
  // First token of sample s >= 0; -1 behind the last sequential window.
  int64_t begin_of(int64_t sample) const;

 private:
  WindowOrder(int64_t tokens, int64_t T, uint64_t seed, bool shuffled);

  int64_t T_, windows_, slack_;
  uint64_t seed_;
  bool shuffled_;
};

class Batches {
 public:
  // Both throw DataError where the range is shorter than one window of T + 1 tokens.
  static Batches training(TokenRange range, int64_t T, int64_t vocab_size, uint64_t seed);
  static Batches validation(TokenRange range, int64_t T, int64_t vocab_size);

  // Windows in an epoch. A validation that takes each window once, with S samples a round,
  // has ceil(windows() / S) rounds.
  int64_t windows() const { return order_.windows(); }
  int64_t sequence_length() const { return T_; }

  // ids (B,T) and targets (B,T), host memory: samples first_sample ... first_sample + B - 1, targets[b][t] the token
  // behind ids[b][t]. Behind the last validation window: ids 0, targets -1 (ignored); a batch may then have no valid
  // target at all.
  void fill(int64_t first_sample, int64_t B, int32_t* ids, int32_t* targets) const;

 private:
  Batches(TokenRange range, int64_t T, int64_t vocab_size, WindowOrder order);

  TokenRange range_;
  int64_t T_, vocab_size_;
  WindowOrder order_;
};

}  // namespace trencadis
