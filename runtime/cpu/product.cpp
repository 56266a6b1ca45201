// The product is cut as Goto and van de Geijn taught ("Anatomy of High-Performance Matrix Multiplication", 2008): a
// processor multiplies much faster than it reads, and reads fast only what lies close by, in order.
//
//   tile    kRows x kColumns elements of the result, summed in registers over one piece of K. Each of its steps reads
//           kRows values of a and kColumns of b and multiplies each with each.
//   panel   what a tile needs of one operand: kRows rows of a, or kColumns columns of b, over one piece of K; packed
//           into the order in which the steps read it.
//   shared  The operand with the shorter side is packed first, and all threads read it. The other is dealt out in
//           groups of panels: a thread packs a group for itself and lets it meet every shared panel, one after the
//           other. So a value is packed once, and the larger operand comes from memory once.
//
// While a tile is summed, the processor is told what it will want next: the elements of the result, and the shared
// panel that follows; and while it packs, the steps to come. Without that a tenth of the time goes with waiting.
//
// How M and N are cut hangs on the number of threads, and changes no bit: an element is summed by one thread at a time,
// in the order that K alone gives (product.h).
#include "runtime/cpu/product.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/cpu/vec.h"

namespace trencadis {

namespace {

// The sums of a tile fill the registers but for a few, which hold what a step has read: 28 of AVX-512's 32, 12 of
// AVX2's 16, 24 of NEON's 32.
constexpr int64_t kRows = vec::kRegisterBytes == 64 ? 14 : 6;
constexpr int64_t kVectors = vec::kRegisterBytes == 64 ? 2 : 1;
constexpr int64_t kColumns = kVectors * vec::kLanes;

constexpr int64_t kPiece = 512;            // of K, at most: a panel is about as large as the innermost cache
constexpr int64_t kGroupFloats = 1 << 17;  // of a group: 512 KiB, for the second cache, beside what passes through
constexpr int64_t kLeastWork = 1'000'000;  // multiplications for which another thread is woken; about 10 us
constexpr int64_t kStepsPerFetch = 4;      // of a tile: a row of the result and a line of the next panel are asked for
constexpr int64_t kStepsAhead = 8;         // from the step that is packed to the one that is asked for

// Panels that a thread has packed for itself.
template <int64_t kWidth>
struct Group {
  static constexpr int64_t kPanels = kGroupFloats / (kPiece * kWidth);
  alignas(64) float at[kPanels * (kWidth * kPiece + 16)];
};

// One operand, along M or N: `length` rows (of a) or columns (of b).
struct Side {
  const float* at;
  int64_t ld;
  bool along_k;  // what is next in memory is next in K
  int64_t length;

  int64_t panels(int64_t width) const { return (length + width - 1) / width; }
};

// A piece of K. The pieces before it have left their sum in c.
struct Piece {
  int64_t k, depth;
  bool add;  // to what stands in c; else the result starts with the bias, if there is one
  const float* bias;
};

// Floats from one packed panel to the next: not a multiple of 4 KiB, at which a cache's lines get in each other's way.
template <int64_t kWidth>
int64_t panel_floats(int64_t depth) {
  return (kWidth * depth + 15) / 16 * 16 + 16;
}

// Packs `count` panels of a side, from panel `first` on, over a piece of K: element w of step i of the first panel goes
// to to[i * kWidth + w]. What would lie beyond the side's end is 0.
template <int64_t kWidth>
void pack(float* to, const Side& side, int64_t first, int64_t count, const Piece& piece) {
  if (count == 0) return;
  const int64_t k = piece.k, depth = piece.depth, floats = panel_floats<kWidth>(depth);
  const auto width = [&](int64_t panel) { return std::min(kWidth, side.length - panel * kWidth); };
  if (const int64_t last = first + count - 1; width(last) < kWidth)
    std::fill_n(to + (count - 1) * floats, depth * kWidth, 0.0f);

  if (!side.along_k) {
    // A step of all panels after the other: so memory is read in long rows.
    for (int64_t i = 0; i < depth; ++i) {
      const float* from = side.at + (k + i) * side.ld + first * kWidth;
      for (int64_t p = 0; p < count; ++p, from += kWidth) {
        __builtin_prefetch(from + kStepsAhead * side.ld);
        float* step = to + p * floats + i * kWidth;
        if (width(first + p) == kWidth) [[likely]]
          std::memcpy(step, from, kWidth * sizeof(float));  // of constant size: moves, no call
        else
          std::copy_n(from, width(first + p), step);
      }
    }
    return;
  }
  for (int64_t p = 0; p < count; ++p, to += floats)
    for (int64_t w = 0; w < width(first + p); w += vec::kLanes) {
      const int64_t rows = std::min(vec::kLanes, width(first + p) - w);
      const float* from = side.at + ((first + p) * kWidth + w) * side.ld + k;
      for (int64_t i = 0; i < depth; i += vec::kLanes) {
        const int64_t steps = std::min(vec::kLanes, depth - i);
        vec::F32 block[vec::kLanes];
        for (int64_t r = 0; r < vec::kLanes; ++r)
          block[r] = r < rows ? vec::load(from + r * side.ld + i, steps) : vec::F32(0.0f);
        vec::transpose(block);
        for (int64_t s = 0; s < steps; ++s) vec::store(to + (i + s) * kWidth + w, block[s], rows);
      }
    }
}

struct Result {
  float* at;
  int64_t ld, rows, columns;
};

// The tile at (row, column) of c = start + the sum over the piece's steps of a's panel and b's. `ahead`: what to ask for
// meanwhile, a line after each kStepsPerFetch steps.
void tile(const Result& c, int64_t row, int64_t column, const float* a, const float* b, const Piece& piece,
          const float* ahead) {
  const int64_t rows = std::min(kRows, c.rows - row), depth = piece.depth;
  float* const corner = c.at + row * c.ld + column;
  vec::F32 sum[kRows][kVectors];
#pragma GCC unroll 14
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) sum[r][v] = 0.0f;

  // In a loop that is not unrolled: GCC 12 would mix the steps, and have too few registers for the sums.
  const auto step = [&](int64_t k) __attribute__((always_inline)) {
    vec::F32 right[kVectors];
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) right[v] = vec::load(b + k * kColumns + v * vec::kLanes);
#pragma GCC unroll 14
    for (int64_t r = 0; r < kRows; ++r) {
      const vec::F32 left = a[k * kRows + r];
#pragma GCC unroll 2
      for (int64_t v = 0; v < kVectors; ++v) sum[r][v] = vec::fma(left, right[v], sum[r][v]);
    }
  };
  int64_t k = 0;
  for (int64_t r = 0; k + kStepsPerFetch <= depth; k += kStepsPerFetch, ++r) {
#pragma GCC unroll 1
    for (int64_t i = 0; i < kStepsPerFetch; ++i) step(k + i);
    if (r < rows)
      for (int64_t v = 0; v < kVectors; ++v) __builtin_prefetch(corner + r * c.ld + v * vec::kLanes, 1);
    __builtin_prefetch(ahead + r * vec::kLanes, 0, 2);
  }
  for (; k < depth; ++k) step(k);

#pragma GCC unroll 2
  for (int64_t v = 0; v < kVectors; ++v) {
    const int64_t offset = v * vec::kLanes, lanes = c.columns - column - offset;
    if (lanes <= 0) break;
    const vec::F32 bias = piece.bias ? vec::load(piece.bias + column + offset, lanes) : vec::F32(0.0f);
#pragma GCC unroll 14
    for (int64_t r = 0; r < kRows; ++r) {
      if (r >= rows) break;
      float* to = corner + r * c.ld + offset;
      vec::store(to, (piece.add ? vec::load(to, lanes) : bias) + sum[r][v], lanes);
    }
  }
}

template <typename Body>
void for_pieces(int64_t K, const Start& start, const Body& body) {
  const int64_t pieces = std::max<int64_t>(1, (K + kPiece - 1) / kPiece), size = (K + pieces - 1) / pieces;
  for (int64_t i = 0; i < pieces; ++i)
    body(Piece{i * size, std::min(size, K - i * size), start.result || i > 0, start.bias});
}

// Adds one piece to all of c. kShared: how wide a panel of the shared side is, kOwn: of the other; a's panels are kRows
// wide.
template <int64_t kShared, int64_t kOwn>
void add_piece(ThreadPool& pool, float* packed, const Result& c, const Side& shared, const Side& own,
               const Piece& piece, int64_t threads) {
  const int64_t depth = piece.depth, shared_panels = shared.panels(kShared), own_panels = own.panels(kOwn);
  const auto panel_at = [&](int64_t panel) { return packed + panel * panel_floats<kShared>(depth); };
  pool.run(threads, [&](int64_t thread) {
    const int64_t first = shared_panels * thread / threads, last = shared_panels * (thread + 1) / threads;
    pack<kShared>(panel_at(first), shared, first, last - first, piece);
  });

  // Groups become smaller towards the end, so that threads end at about the same time.
  std::vector<int64_t> firsts;
  constexpr int64_t kMost = Group<kOwn>::kPanels;
  for (int64_t first = 0; first < own_panels;) {
    firsts.push_back(first);
    const int64_t even = (own_panels - first + 2 * threads - 1) / (2 * threads);
    first += threads == 1 ? kMost : std::clamp(even, kMost / 4, kMost);
  }
  pool.run(static_cast<int64_t>(firsts.size()), [&](int64_t group) {
    Group<kOwn> mine;
    const size_t next_group = static_cast<size_t>(group) + 1;
    const int64_t first = firsts[next_group - 1];
    const int64_t count = (next_group < firsts.size() ? firsts[next_group] : own_panels) - first;
    pack<kOwn>(mine.at, own, first, count, piece);
    for (int64_t s = 0; s < shared_panels; ++s) {
      const float *theirs = panel_at(s), *next = panel_at(s + 1 < shared_panels ? s + 1 : 0);
      for (int64_t p = 0; p < count; ++p) {
        const float* ours = mine.at + p * panel_floats<kOwn>(depth);
        // The tiles before the next shared panel ask for a part of it each.
        const float* ahead = next + p * (depth / kStepsPerFetch) * vec::kLanes;
        if constexpr (kShared == kRows)
          tile(c, s * kRows, (first + p) * kColumns, theirs, ours, piece, ahead);
        else
          tile(c, (first + p) * kRows, s * kColumns, ours, theirs, piece, ahead);
      }
    }
  });
}

Side rows_of(const Operand& a, int64_t M) { return {a.at, a.ld, !a.transposed, M}; }
Side columns_of(const Operand& b, int64_t N) { return {b.at, b.ld, b.transposed, N}; }

}  // namespace

float* Workspace::take(int64_t floats) {
  const int64_t wanted = (floats + 15) / 16;
  if (wanted > count_) {
    lines_.reset();  // before the larger one is taken
    count_ = 0;
    lines_ = std::make_unique_for_overwrite<Line[]>(wanted);
    count_ = wanted;
  }
  return lines_ ? lines_[0].at : nullptr;
}

void product(ThreadPool& pool, Workspace& workspace, float* c, const Operand& a, const Operand& b, int64_t M, int64_t N,
             int64_t K, const Start& start) {
  if (M == 0 || N == 0) return;
  const Side rows = rows_of(a, M), columns = columns_of(b, N);
  const int64_t threads = std::clamp<int64_t>(M * N * K / kLeastWork, 1, pool.threads());
  for_pieces(K, start, [&](const Piece& piece) {
    if (N <= M)
      add_piece<kColumns, kRows>(pool, workspace.take(columns.panels(kColumns) * panel_floats<kColumns>(piece.depth)),
                                 {c, N, M, N}, columns, rows, piece, threads);
    else
      add_piece<kRows, kColumns>(pool, workspace.take(rows.panels(kRows) * panel_floats<kRows>(piece.depth)),
                                 {c, N, M, N}, rows, columns, piece, threads);
  });
}

void product(float* c, int64_t ldc, const Operand& a, const Operand& b, int64_t M, int64_t N, int64_t K,
             const Start& start) {
  const Side rows = rows_of(a, M), columns = columns_of(b, N);
  const int64_t row_panels = rows.panels(kRows), column_panels = columns.panels(kColumns);
  Group<kColumns> group;
  alignas(64) float left[kRows * kPiece];
  for_pieces(K, start, [&](const Piece& piece) {
    const auto right = [&](int64_t panel) { return group.at + panel * panel_floats<kColumns>(piece.depth); };
    for (int64_t first = 0; first < column_panels; first += group.kPanels) {
      const int64_t count = std::min(group.kPanels, column_panels - first);
      pack<kColumns>(group.at, columns, first, count, piece);
      for (int64_t p = 0; p < row_panels; ++p) {
        pack<kRows>(left, rows, p, 1, piece);
        for (int64_t q = 0; q < count; ++q)
          tile({c, ldc, M, N}, p * kRows, (first + q) * kColumns, left, right(q), piece, right(q + 1));
      }
    }
  });
}

}  // namespace trencadis
