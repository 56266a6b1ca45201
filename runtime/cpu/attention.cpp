// Causal attention, tile by tile (Dao et al., "FlashAttention", 2022; the CPU needs the memory bound
// as much as the GPU).
//
// A tile is kQueries rows of scores, as wide as the keys they see, at most kKeys. Forward walks the tiles of a row from
// left to right and keeps each row's maximum m and sum l so far; when m grows, what was summed is rescaled. Backward
// makes the same tiles again from q, k and lse. Scratch is two tiles on the stack of each thread, whatever T is.
//
// Invariants:
//   - kKeys is a multiple of kQueries and tiles start at multiples of both, so each row of a computed tile has at least
//     one key at or before the row: m is finite whenever the scores are.
//   - Entries of a tile right of the diagonal are 0 before a tile is an operand of a product.
//   - Sums run over query tiles and key tiles in ascending order, inside one work item: (b, h, query tile) forward,
//     (b, key/value head) backward.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/attention_shape.h"
#include "runtime/cpu/argument.h"
#include "runtime/cpu/cpu_kernels.h"
#include "runtime/cpu/dropout_mask.h"
#include "runtime/cpu/product.h"
#include "runtime/cpu/vec.h"

namespace trencadis {

namespace {

constexpr int64_t kQueries = 64;
constexpr int64_t kKeys = 256;
static_assert(kKeys % kQueries == 0 && kQueries % vec::kLanes == 0 && kKeys % vec::kLanes == 0);
// Of a tile in memory: not a power of two, which would share few cache sets.
constexpr int64_t kRow = kKeys + vec::kLanes;

// Scores, probabilities or their gradients: row r is query i0 + r, column c is key j0 + c.
struct Tile {
  alignas(64) float at[kQueries * kRow];
  float* row(int64_t r) { return at + r * kRow; }
};

// Queries [i0, i0 + rows) of head h against keys [j0, j0 + columns).
struct TileRange {
  int64_t b, h, i0, rows, j0, columns;
  // Keys of this tile that row r may see.
  int64_t visible(int64_t r) const { return std::min(columns, i0 + r + 1 - j0); }
};

template <typename Void>
auto* heads_argument(const char* kernel, const char* name, const detail::BasicView<Void>& v, const AttentionShape& s,
                     int64_t heads, int64_t stride) {
  return argument<float>(kernel, name, v, heads_elements(s, heads, stride));
}

// Where head h of token t of sample b starts.
int64_t head_at(const AttentionShape& s, int64_t stride, int64_t b, int64_t t, int64_t h) {
  return (b * s.T + t) * stride + h * s.D;
}

// The dropout factors of the visible probabilities of row r, into `factor` (kKeys long).
void dropout_factors(float* factor, const AttentionShape& s, const TileRange& tile, int64_t r) {
  const int64_t element = (tile.h * s.T + tile.i0 + r) * s.T + tile.j0;
  DropoutFactors(s.dropout, tile.b).write(factor, element, tile.visible(r));
}

// In each row: m and l become the maximum and the sum of exp(s - m) so far, the scores become dropout(exp(s - m)),
// rescale the factor for what was summed before with the former maximum.
void softmax_tile(Tile& p, float* m, float* l, float* rescale, const AttentionShape& s, const TileRange& tile) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  alignas(64) float new_m[kQueries];
  alignas(64) float row_sum[kQueries];
  std::fill(new_m, new_m + kQueries, 0.0f);
  std::fill(row_sum, row_sum + kQueries, 0.0f);

  for (int64_t r = 0; r < tile.rows; ++r) {
    float* row = p.row(r);
    const int64_t n = tile.visible(r);
    vec::F32 most = m[r];
    vec::for_lanes(n, [&](int64_t c, int64_t lanes) {
      const vec::F32 score = vec::load(row + c, lanes, kNone) * s.scale;
      most = vec::max(most, score);
      vec::store(row + c, score);
    });
    new_m[r] = vec::max_of(most);
    vec::F32 sum = 0.0f;
    // Scores beyond the last visible key are -inf by now, up to a multiple of 16; further right lies what product()
    // left.
    vec::for_lanes(n, [&](int64_t c, int64_t) {
      const vec::F32 e = vec::exp(vec::load(row + c) - new_m[r]);
      sum += e;
      vec::store(row + c, e);
    });
    row_sum[r] = vec::sum(sum);
    std::fill(row + n, row + tile.columns, 0.0f);
    if (s.dropout.probability > 0) {
      alignas(64) float factor[kKeys];
      dropout_factors(factor, s, tile, r);
      vec::for_lanes(n, [&](int64_t c, int64_t lanes) {
        vec::store(row + c, vec::load(row + c, lanes) * vec::load(factor + c, lanes), lanes);
      });
    }
  }
  // Rows beyond tile.rows compute on zeros.
  vec::for_lanes(kQueries, [&](int64_t r, int64_t) {
    const vec::F32 now = vec::load(new_m + r), factor = vec::exp(vec::load(m + r) - now);
    vec::store(rescale + r, factor);
    vec::store(l + r, vec::fma(vec::load(l + r), factor, vec::load(row_sum + r)));
    vec::store(m + r, now);
  });
}

// From scores and dp = do . v to what the products of backward take: p = dropout(exp(s - lse)) and
// ds = scale * exp(s - lse) * (dropout'(dp) - delta).
void gradient_tile(Tile& p, Tile& ds, const float* lse, const float* delta, const AttentionShape& s,
                   const TileRange& tile) {
  const bool masked = s.dropout.probability > 0;
  alignas(64) float factor[kKeys];
  for (int64_t r = 0; r < tile.rows; ++r) {
    float *p_row = p.row(r), *ds_row = ds.row(r);
    const int64_t n = tile.visible(r);
    if (masked) dropout_factors(factor, s, tile, r);
    vec::for_lanes(n, [&](int64_t c, int64_t lanes) {
      const vec::F32 probability = vec::exp(vec::load(p_row + c, lanes) * s.scale - lse[r]);
      const vec::F32 keep = masked ? vec::load(factor + c, lanes) : vec::F32(1.0f);
      const vec::F32 dp = vec::load(ds_row + c, lanes) * keep;
      vec::store(p_row + c, probability * keep, lanes);
      vec::store(ds_row + c, probability * (dp - delta[r]) * s.scale, lanes);
    });
    std::fill(p_row + n, p_row + tile.columns, 0.0f);
    std::fill(ds_row + n, ds_row + tile.columns, 0.0f);
  }
}

float dot(const float* x, const float* y, int64_t n) {
  vec::F32 sum = 0.0f;
  vec::for_lanes(
      n, [&](int64_t i, int64_t lanes) { sum = vec::fma(vec::load(x + i, lanes), vec::load(y + i, lanes), sum); });
  return vec::sum(sum);
}

void scale_row(float* x, float factor, int64_t n) {
  vec::for_lanes(n, [&](int64_t i, int64_t lanes) { vec::store(x + i, vec::load(x + i, lanes) * factor, lanes); });
}

}  // namespace

void CpuKernels::attention(View o, View lse, ConstView q, ConstView k, ConstView v, const AttentionShape& s) {
  check_attention_shape("attention", s);
  float* out = heads_argument("attention", "o", o, s, s.H, s.o_stride);
  float* lse_out = argument<float>("attention", "lse", lse, s.B * s.H * s.T);
  const float* query = heads_argument("attention", "q", q, s, s.H, s.q_stride);
  const float* key = heads_argument("attention", "k", k, s, s.H_kv, s.k_stride);
  const float* value = heads_argument("attention", "v", v, s, s.H_kv, s.v_stride);

  const int64_t query_tiles = (s.T + kQueries - 1) / kQueries;
  pool_.run(s.B * s.H * query_tiles, [&](int64_t item) {
    TileRange tile{};
    tile.b = item / query_tiles / s.H;
    tile.h = item / query_tiles % s.H;
    tile.i0 = item % query_tiles * kQueries;
    tile.rows = std::min(kQueries, s.T - tile.i0);
    const int64_t kv_head = tile.h / (s.H / s.H_kv);
    float* o_tile = out + head_at(s, s.o_stride, tile.b, tile.i0, tile.h);

    Tile p;
    alignas(64) float m[kQueries], l[kQueries], rescale[kQueries];
    std::fill(m, m + kQueries, -std::numeric_limits<float>::infinity());
    std::fill(l, l + kQueries, 0.0f);
    for (tile.j0 = 0; tile.j0 < tile.i0 + tile.rows; tile.j0 += kKeys) {
      tile.columns = std::min(kKeys, tile.i0 + tile.rows - tile.j0);
      const Operand queries{query + head_at(s, s.q_stride, tile.b, tile.i0, tile.h), s.q_stride, false};
      const Operand keys{key + head_at(s, s.k_stride, tile.b, tile.j0, kv_head), s.k_stride, false};
      const Operand values{value + head_at(s, s.v_stride, tile.b, tile.j0, kv_head), s.v_stride, false};
      product(p.at, kRow, queries, transposed(keys), tile.rows, tile.columns, s.D);
      softmax_tile(p, m, l, rescale, s, tile);
      if (tile.j0 > 0)
        for (int64_t r = 0; r < tile.rows; ++r) scale_row(o_tile + r * s.o_stride, rescale[r], s.D);
      product(o_tile, s.o_stride, {p.at, kRow, false}, values, tile.rows, s.D, tile.columns, {.result = tile.j0 > 0});
    }
    float* lse_row = lse_out + (tile.b * s.H + tile.h) * s.T + tile.i0;
    for (int64_t r = 0; r < tile.rows; ++r) {
      scale_row(o_tile + r * s.o_stride, 1 / l[r], s.D);
      lse_row[r] = m[r] + std::log(l[r]);
    }
  });
}

void CpuKernels::attention_backward(View dq, View dk, View dv, ConstView d_o, ConstView o, ConstView lse, ConstView q,
                                    ConstView k, ConstView v, const AttentionShape& s) {
  const char* kernel = "attention_backward";
  check_attention_shape(kernel, s);
  float* dq_out = heads_argument(kernel, "dq", dq, s, s.H, s.q_stride);
  float* dk_out = heads_argument(kernel, "dk", dk, s, s.H_kv, s.k_stride);
  float* dv_out = heads_argument(kernel, "dv", dv, s, s.H_kv, s.v_stride);
  const float* d_out = heads_argument(kernel, "d_o", d_o, s, s.H, s.o_stride);
  const float* out = heads_argument(kernel, "o", o, s, s.H, s.o_stride);
  const float* lse_in = argument<float>(kernel, "lse", lse, s.B * s.H * s.T);
  const float* query = heads_argument(kernel, "q", q, s, s.H, s.q_stride);
  const float* key = heads_argument(kernel, "k", k, s, s.H_kv, s.k_stride);
  const float* value = heads_argument(kernel, "v", v, s, s.H_kv, s.v_stride);
  const int64_t group = s.H / s.H_kv;

  // All query heads of a key/value head add to the same dk and dv: one work item, so that the order
  // of the sum is fixed.
  pool_.run(s.B * s.H_kv, [&](int64_t item) {
    const int64_t b = item / s.H_kv, kv_head = item % s.H_kv;
    for (int64_t t = 0; t < s.T; ++t) {
      std::fill_n(dk_out + head_at(s, s.k_stride, b, t, kv_head), s.D, 0.0f);
      std::fill_n(dv_out + head_at(s, s.v_stride, b, t, kv_head), s.D, 0.0f);
    }
    Tile p, ds;
    TileRange tile{};
    tile.b = b;
    for (tile.h = kv_head * group; tile.h < (kv_head + 1) * group; ++tile.h) {
      for (tile.i0 = 0; tile.i0 < s.T; tile.i0 += kQueries) {
        tile.rows = std::min(kQueries, s.T - tile.i0);
        const float* q_tile = query + head_at(s, s.q_stride, b, tile.i0, tile.h);
        float* dq_tile = dq_out + head_at(s, s.q_stride, b, tile.i0, tile.h);
        const float* do_tile = d_out + head_at(s, s.o_stride, b, tile.i0, tile.h);
        const float* o_tile = out + head_at(s, s.o_stride, b, tile.i0, tile.h);
        const float* lse_row = lse_in + (b * s.H + tile.h) * s.T + tile.i0;

        // sum_j p_ij dp_ij = sum over D of do * o: known before any tile is made.
        float delta[kQueries];
        for (int64_t r = 0; r < tile.rows; ++r) delta[r] = dot(do_tile + r * s.o_stride, o_tile + r * s.o_stride, s.D);

        for (tile.j0 = 0; tile.j0 < tile.i0 + tile.rows; tile.j0 += kKeys) {
          tile.columns = std::min(kKeys, tile.i0 + tile.rows - tile.j0);
          const int64_t at_k = head_at(s, s.k_stride, b, tile.j0, kv_head);
          const int64_t at_v = head_at(s, s.v_stride, b, tile.j0, kv_head);
          // p = scores, ds = dp, both before the mask.
          const Operand keys{key + at_k, s.k_stride, false}, values{value + at_v, s.v_stride, false};
          const Operand queries{q_tile, s.q_stride, false}, d_outs{do_tile, s.o_stride, false};
          product(p.at, kRow, queries, transposed(keys), tile.rows, tile.columns, s.D);
          product(ds.at, kRow, d_outs, transposed(values), tile.rows, tile.columns, s.D);
          gradient_tile(p, ds, lse_row, delta, s, tile);
          product(dv_out + at_v, s.v_stride, transposed({p.at, kRow, false}), d_outs, tile.columns, s.D, tile.rows,
                  {.result = true});
          product(dk_out + at_k, s.k_stride, transposed({ds.at, kRow, false}), queries, tile.columns, s.D, tile.rows,
                  {.result = true});
          product(dq_tile, s.q_stride, {ds.at, kRow, false}, keys, tile.rows, s.D, tile.columns,
                  {.result = tile.j0 > 0});
        }
      }
    }
  });
}

}  // namespace trencadis
