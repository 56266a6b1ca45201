// One collective as data, and what it does to memory: the piece of code that all ways of simulating NCCL share.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace trencadis::ncclsim {

enum class Kind : int32_t { all_reduce, reduce_scatter, all_gather, broadcast };

// What all ranks must say alike. It travels between processes as bytes, hence plain members.
struct CollectiveCall {
  Kind kind = Kind::all_reduce;
  uint64_t count = 0;  // as NCCL's functions mean it: of a shard for reduce_scatter and all_gather
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;  // of reductions
  int32_t root = 0;          // of broadcast
};

bool agree(const CollectiveCall& a, const CollectiveCall& b);
std::string describe(const CollectiveCall& call);  // "ncclAllReduce(4096 ncclFloat32, ncclSum)"

size_t size_of(ncclDataType_t type);
bool is_supported(const CollectiveCall& call);  // types and operations that this project uses
uint64_t elements_in(const CollectiveCall& call, int ranks);
uint64_t elements_out(const CollectiveCall& call, int ranks);

// A rank's buffers; they may be the same, or one inside the other, as NCCL allows.
struct Buffers {
  const char* in = nullptr;
  char* out = nullptr;
};

// Performs the collective for all ranks. Sums run in rank order. as_rank(r, work) does work as rank r's stream: all
// access to r's buffers happens in there, so that ThreadSanitizer knows whose it is.
using AsRank = std::function<void(int rank, const std::function<void()>& work)>;
void perform(const CollectiveCall& call, std::span<const Buffers> by_rank, const AsRank& as_rank);

}  // namespace trencadis::ncclsim
