#include "dist/ncclsim/collective_call.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "dist/collective.h"

namespace trencadis::ncclsim {

namespace {

constexpr uint64_t kChunk = 64 * 1024;  // elements that are summed at a time

const char* name_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return "ncclFloat32";
    case ncclBfloat16:
      return "ncclBfloat16";
    case ncclFloat64:
      return "ncclFloat64";
    case ncclInt64:
      return "ncclInt64";
    case ncclInt32:
      return "ncclInt32";
    default:
      return "a type that is not simulated";
  }
}

bool reduces(Kind kind) { return kind == Kind::all_reduce || kind == Kind::reduce_scatter; }

template <typename T>
T of(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// out = max(out, x) as NCCL's device code has it: fmax for floats, which drops a NaN.
template <typename T>
void max_into(char* out, const char* x, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    const T a = of<T>(out + i * sizeof(T)), b = of<T>(x + i * sizeof(T));
    const bool take_b = a < b || a != a;
    std::memcpy(out + i * sizeof(T), take_b ? &b : &a, sizeof(T));
  }
}

void max_into(char* out, const char* x, uint64_t n, ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return max_into<float>(out, x, n);
    case ncclFloat64:
      return max_into<double>(out, x, n);
    case ncclInt64:
      return max_into<int64_t>(out, x, n);
    default:
      return max_into<int32_t>(out, x, n);
  }
}

DType dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclBfloat16:
      return DType::bf16;
    case ncclFloat64:
      return DType::f64;
    case ncclInt64:
      return DType::i64;
    default:
      return DType::f32;
  }
}

// parts[0] = parts[0] op parts[1] op ..., from the left.
void reduce(std::vector<std::vector<char>>& parts, uint64_t n, const CollectiveCall& call) {
  if (call.op == ncclMax) {
    for (size_t r = 1; r < parts.size(); ++r) max_into(parts[0].data(), parts[r].data(), n, call.type);
    return;
  }
  std::vector<const void*> by_rank;
  for (const auto& part : parts) by_rank.push_back(part.data());
  reduce_in_rank_order(parts[0].data(), by_rank, static_cast<int64_t>(n), dtype_of(call.type), ReduceOp::sum, false,
                       parts[0].data());
}

}  // namespace

bool agree(const CollectiveCall& a, const CollectiveCall& b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type && (!reduces(a.kind) || a.op == b.op) &&
         (a.kind != Kind::broadcast || a.root == b.root);
}

std::string describe(const CollectiveCall& call) {
  static constexpr const char* names[] = {"ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast"};
  std::string text = fmt::format("{}({} {}", names[static_cast<int>(call.kind)], call.count, name_of(call.type));
  if (reduces(call.kind)) text += call.op == ncclSum ? ", ncclSum" : call.op == ncclMax ? ", ncclMax" : ", another op";
  if (call.kind == Kind::broadcast) text += fmt::format(", root {}", call.root);
  return text + ")";
}

size_t size_of(ncclDataType_t type) {
  return type == ncclBfloat16 ? 2 : type == ncclFloat64 || type == ncclInt64 ? 8 : 4;
}

bool is_supported(const CollectiveCall& call) {
  const bool known = call.type == ncclFloat32 || call.type == ncclBfloat16 || call.type == ncclFloat64 ||
                     call.type == ncclInt64 || call.type == ncclInt32;
  if (!known || !reduces(call.kind)) return known;
  return (call.op == ncclSum && call.type != ncclInt32) || (call.op == ncclMax && call.type != ncclBfloat16);
}

uint64_t elements_in(const CollectiveCall& call, int ranks) {
  return call.kind == Kind::reduce_scatter ? call.count * static_cast<uint64_t>(ranks) : call.count;
}

uint64_t elements_out(const CollectiveCall& call, int ranks) {
  return call.kind == Kind::all_gather ? call.count * static_cast<uint64_t>(ranks) : call.count;
}

// A chunk passes through host memory: every rank's part is read as that rank, then the result is written as each of
// them. In place is safe, for what a chunk overwrites has been read and is needed by no later one.
void perform(const CollectiveCall& call, std::span<const Buffers> by_rank, const AsRank& as_rank) {
  const int ranks = static_cast<int>(by_rank.size());
  const size_t size = size_of(call.type);
  const uint64_t chunk = std::min(kChunk, call.count);
  std::vector<std::vector<char>> parts(by_rank.size(), std::vector<char>(chunk * size));

  const auto read = [&](int rank, size_t part, uint64_t first, uint64_t n) {
    as_rank(rank,
            [&] { std::memcpy(parts[part].data(), by_rank[static_cast<size_t>(rank)].in + first * size, n * size); });
  };
  const auto write = [&](int rank, size_t part, uint64_t first, uint64_t n) {
    as_rank(rank,
            [&] { std::memcpy(by_rank[static_cast<size_t>(rank)].out + first * size, parts[part].data(), n * size); });
  };

  for (uint64_t first = 0; first < call.count; first += chunk) {
    const uint64_t n = std::min(chunk, call.count - first);
    switch (call.kind) {
      case Kind::all_reduce:
        for (int r = 0; r < ranks; ++r) read(r, static_cast<size_t>(r), first, n);
        reduce(parts, n, call);
        for (int r = 0; r < ranks; ++r) write(r, 0, first, n);
        break;
      case Kind::reduce_scatter:
        for (int owner = 0; owner < ranks; ++owner) {
          const uint64_t from = static_cast<uint64_t>(owner) * call.count + first;
          for (int r = 0; r < ranks; ++r) read(r, static_cast<size_t>(r), from, n);
          reduce(parts, n, call);
          write(owner, 0, first, n);
        }
        break;
      case Kind::all_gather:
        for (int r = 0; r < ranks; ++r) read(r, static_cast<size_t>(r), first, n);
        for (int r = 0; r < ranks; ++r)
          for (int from = 0; from < ranks; ++from)
            write(r, static_cast<size_t>(from), static_cast<uint64_t>(from) * call.count + first, n);
        break;
      case Kind::broadcast:
        read(call.root, 0, first, n);
        for (int r = 0; r < ranks; ++r) write(r, 0, first, n);
        break;
    }
  }
}

}  // namespace trencadis::ncclsim
