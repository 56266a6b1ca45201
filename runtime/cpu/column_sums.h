// ColumnSums: the sum over all rows of an (N,K) matrix, for kernels that pass over the rows in parallel (gradients of
// biases and of layer norm's gamma and beta).
//
// Rows are cut into chunks by N alone. Each chunk writes its own partial sums, whichever thread runs it, and they are
// added in chunk order: the bits depend on shapes only. Chunks also bound the rounding error, which grows with the
// length of a running sum: for N rows it is that of about N/64 + 64 additions once N is large.
#pragma once

#include <memory>

#include "runtime/cpu/vec.h"
#include "runtime/thread_pool.h"

namespace trencadis {

class ColumnSums {
 public:
  // Rows a chunk has at least: enough to make the final addition over chunks a small part of the work.
  static constexpr int64_t kRowsPerChunk = 32;

  ColumnSums(int64_t N, int64_t K)
      : chunks(N, kRowsPerChunk), K_(K), sums_(std::make_unique_for_overwrite<float[]>(chunks.count * K)) {}

  const Chunks chunks;  // of rows

  // The K sums of one chunk; whoever runs it writes them all.
  float* partial(int64_t chunk) { return sums_.get() + chunk * K_; }

  // out_k = sum over chunks, or out_k + (that sum): a gradient is complete before it is added to another.
  void add_up(ThreadPool& pool, float* out, bool accumulate) const {
    const Chunks blocks((K_ + vec::kLanes - 1) / vec::kLanes, 64);  // of columns, in vectors
    pool.run(blocks.count, [&](int64_t block) {
      const int64_t first = blocks.begin(block) * vec::kLanes;
      const int64_t last = std::min(K_, (blocks.begin(block) + blocks.size) * vec::kLanes);
      vec::for_lanes(last - first, [&](int64_t i, int64_t lanes) {
        vec::F32 total = 0.0f;
        for (int64_t chunk = 0; chunk < chunks.count; ++chunk)
          total += vec::load(sums_.get() + chunk * K_ + first + i, lanes);
        vec::store(out + first + i, accumulate ? vec::load(out + first + i, lanes) + total : total, lanes);
      });
    });
  }

 private:
  int64_t K_;
  std::unique_ptr<float[]> sums_;  // (chunks, K)
};

}  // namespace trencadis
