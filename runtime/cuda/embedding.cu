// Embedding of tokens and positions, and its backward pass.
//
// Backward scatters: row ids[n] of dwte receives dy[n], and many tokens may name one row. Adding with atomics would add
// in the order of arrival; a thread per row of the vocabulary that looks through all tokens would look V*N times. So
// the tokens are sorted by (id, position). Then every row's tokens lie side by side, in ascending order, and one block
// adds them one after another: the sum has the CPU's order, hence in f32 the CPU's bits.
//
// Keys id * 2^32 + position are all different, so that any sort gives one result. This one is a merge sort in which
// nobody waits for anybody: in a pass, the place of a key is its place in its own run plus the number of smaller keys
// in the neighbouring run, which a binary search counts. Tiles of 256 come first, each key counting the smaller ones of
// its tile. That makes log2(N / 256) + 1 kernels, 8 for N = 32768, each with one search a key.
//
// Ids are on the device, where nothing can be thrown: an id outside the vocabulary gives a row of NaN, which the loss
// shows, and in backward its gradient goes nowhere.
#include <cmath>

#include "runtime/cuda/argument.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/reduce.cuh"
#include "runtime/cuda/types.cuh"

namespace trencadis {

namespace {

constexpr int kBlock = 256;
constexpr int kGatherBlock = 128;
using Key = unsigned long long;  // id * 2^32 + position; a negative id is above every vocabulary

__device__ inline int64_t id_of(Key key) { return static_cast<int64_t>(key >> 32); }
__device__ inline int64_t position_of(Key key) { return static_cast<int64_t>(key & 0xffffffffu); }

// y (B*T,C), a group of C a thread.
template <bool kAligned, typename T>
__global__ void __launch_bounds__(kBlock)
    embedding_kernel(T* y, const int32_t* ids, const T* wte, const T* wpe, int64_t N, int64_t sequence, int64_t C,
                     int64_t V, int64_t groups) {
  for (int64_t i = grid_thread(); i < N * groups; i += grid_threads()) {
    const int64_t n = i / groups, c = i % groups * kGroup<T>, id = ids[n];
    Group<T> sum = load_group<kAligned>(wpe + n % sequence * C + c, C - c);
    const bool known = id >= 0 && id < V;
    const Group<T> token = load_group<kAligned>(wte + (known ? id : 0) * C + c, C - c);
#pragma unroll
    for (int k = 0; k < kGroup<T>; ++k) sum.v[k] = known ? token.v[k] + sum.v[k] : NAN;
    store_group<kAligned>(y + n * C + c, sum, C - c);
  }
}

// Makes the keys and sorts them in tiles of kBlock, one a block.
__global__ void __launch_bounds__(kBlock) sort_tiles_kernel(Key* keys, const int32_t* ids, int64_t N) {
  __shared__ SharedArray<Key, kBlock> tile;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kBlock, n = begin + threadIdx.x;
  const Key key = n < N ? static_cast<Key>(static_cast<uint32_t>(ids[n])) << 32 | static_cast<Key>(n) : ~Key{0};
  tile[threadIdx.x] = key;
  __syncthreads();
  int place = 0;
  for (int i = 0; i < kBlock; ++i) place += tile[i] < key;
  if (n < N) keys[begin + place] = key;
}

// sorted = keys, in which runs of `run` keys are in order, with each two neighbouring runs made one.
__global__ void __launch_bounds__(kBlock) merge_runs_kernel(Key* sorted, const Key* keys, int64_t run, int64_t N) {
  const int64_t i = grid_thread();
  if (i >= N) return;
  const Key key = keys[i];
  const int64_t own = i / run * run, pair = own / (2 * run) * 2 * run;
  const int64_t other = own == pair ? own + run : pair;  // where the neighbouring run begins; there may be none
  int64_t low = other < N ? other : N, high = other + run < N ? other + run : N;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (keys[middle] < key)
      low = middle + 1;
    else
      high = middle;
  }
  const int64_t smaller = low - (other < N ? other : N);
  sorted[pair + (i - own) + smaller] = key;
}

// Block (i, tile) adds up dwte's row if sorted key i is the first one of its id; else the block of that one does.
template <bool kAligned, typename T>
__global__ void __launch_bounds__(kGatherBlock)
    gather_rows_kernel(T* dwte, const Key* keys, const T* dy, int64_t N, int64_t C, int64_t V, bool accumulate) {
  const int64_t i = blockIdx.x, id = id_of(keys[i]);
  if (id >= V || (i > 0 && id_of(keys[i - 1]) == id)) return;
  const int64_t c = (static_cast<int64_t>(blockIdx.y) * kGatherBlock + threadIdx.x) * kGroup<T>;
  if (c >= C) return;
  Group<T> sum = {};
  if (accumulate) sum = load_group<kAligned>(dwte + id * C + c, C - c);
  // A frequent token has hundreds of rows. kAhead of them are loaded at a time, and added one after another.
  constexpr int kAhead = 4;
  int64_t same = N - i;  // tokens from i on that may have this id
  for (int64_t j = 0; j < same; j += kAhead) {
    Group<T> rows[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (j + a < same && id_of(keys[i + j + a]) != id) same = j + a;
      rows[a] = {};
      if (j + a < same) rows[a] = load_group<kAligned>(dy + position_of(keys[i + j + a]) * C + c, C - c);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a)
#pragma unroll
      for (int k = 0; k < kGroup<T>; ++k)
        if (j + a < same) sum.v[k] += rows[a].v[k];
  }
  store_group<kAligned>(dwte + id * C + c, sum, C - c);
}

// dwpe (positions,C), a group of C a thread: row t = sum over b of dy[b,t]; rows from `sequence` on are 0, or stay.
template <bool kAligned, typename T>
__global__ void __launch_bounds__(kBlock)
    add_positions_kernel(T* dwpe, const T* dy, int64_t B, int64_t sequence, int64_t C, int64_t positions,
                         int64_t groups, bool accumulate) {
  for (int64_t i = grid_thread(); i < positions * groups; i += grid_threads()) {
    const int64_t t = i / groups, c = i % groups * kGroup<T>;
    if (t >= sequence && accumulate) return;  // so are all later turns of this thread
    Group<T> sum = {};
    if (t < sequence)
      for (int64_t b = 0; b < B; ++b) {
        const Group<T> row = load_group<kAligned>(dy + (b * sequence + t) * C + c, C - c);
#pragma unroll
        for (int k = 0; k < kGroup<T>; ++k) sum.v[k] += row.v[k];
      }
    if (accumulate) {
      const Group<T> before = load_group<kAligned>(dwpe + t * C + c, C - c);
#pragma unroll
      for (int k = 0; k < kGroup<T>; ++k) sum.v[k] = before.v[k] + sum.v[k];
    }
    store_group<kAligned>(dwpe + t * C + c, sum, C - c);
  }
}

}  // namespace

void CudaKernels::embedding(View y, ConstView ids, ConstView wte, ConstView wpe, int64_t B, int64_t T, int64_t C,
                            int64_t V) {
  const int64_t N = B * T;
  dispatch_float("embedding", y.dtype, [&](auto zero) {
    using Element = decltype(zero);
    Element* out = device_argument<Element>("embedding", "y", y, N * C);
    const int32_t* tokens = device_argument<int32_t>("embedding", "ids", ids, N);
    const Element* token_table = device_argument<Element>("embedding", "wte", wte, V * C);
    const Element* position_table = device_argument<Element>("embedding", "wpe", wpe, T * C);
    CHECK(V > 0 || N == 0, "embedding: {} tokens, but an empty vocabulary", N);
    const int64_t groups = divide_up(C, kGroup<Element>);
    const bool all_aligned = aligned16(out, token_table, position_table) && C % kGroup<Element> == 0;
    dispatch_bool(all_aligned, [&](auto aligned) {
      launch(stream_, stride_blocks(N * groups, kBlock), kBlock, 0, embedding_kernel<aligned(), Element>, out, tokens,
             token_table, position_table, N, T, C, V, groups);
    });
  });
}

void CudaKernels::embedding_backward(View dwte, View dwpe, ConstView ids, ConstView dy, int64_t B, int64_t T, int64_t C,
                                     int64_t V, int64_t positions, bool accumulate_wte, bool accumulate_wpe) {
  const char* kernel = "embedding_backward";
  const int64_t N = B * T;
  const int32_t* tokens = device_argument<int32_t>(kernel, "ids", ids, N);
  CHECK(T <= positions, "{}: a sequence of {} tokens, but only {} positions", kernel, T, positions);
  CHECK(N <= UINT32_MAX, "{}: {} tokens in one call, more than 2^32", kernel, N);
  dispatch_float(kernel, dy.dtype, [&](auto zero) {
    using Element = decltype(zero);
    const Element* in = device_argument<Element>(kernel, "dy", dy, N * C);
    Element* token_table = optional_argument<Element>(kernel, "dwte", dwte, V * C);
    Element* position_table = optional_argument<Element>(kernel, "dwpe", dwpe, positions * C);
    const int64_t groups = divide_up(C, kGroup<Element>);
    const bool all_aligned = aligned16(in, token_table, position_table) && C % kGroup<Element> == 0;

    if (token_table) {
      if (!accumulate_wte) this->zero(dwte.slice(0, V * C));
      const Scratch<Key> one(scratch_, N), two(scratch_, N);
      Key *keys = one.data(), *sorted = two.data();
      launch(stream_, exact_blocks(divide_up(N, kBlock)), kBlock, 0, sort_tiles_kernel, keys, tokens, N);
      for (int64_t run = kBlock; run < N; run *= 2) {
        launch(stream_, exact_blocks(divide_up(N, kBlock)), kBlock, 0, merge_runs_kernel, sorted, keys, run, N);
        std::swap(keys, sorted);
      }
      const dim3 grid(exact_blocks(N), exact_blocks(divide_up(groups, kGatherBlock), 65535));
      dispatch_bool(all_aligned, [&](auto aligned) {
        launch(stream_, grid, kGatherBlock, 0, gather_rows_kernel<aligned(), Element>, token_table, keys, in, N, C, V,
               accumulate_wte);
      });
    }
    if (position_table)
      dispatch_bool(all_aligned, [&](auto aligned) {
        launch(stream_, stride_blocks(positions * groups, kBlock), kBlock, 0, add_positions_kernel<aligned(), Element>,
               position_table, in, B, T, C, positions, groups, accumulate_wpe);
      });
  });
}

}  // namespace trencadis
