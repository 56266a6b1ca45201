// product(): the matrix product that all others on the CPU are made of. product.cpp tells how it comes to its speed.
//
// Each element is summed in one order, which hangs on K alone: in as few equal pieces as have at most 512 terms each,
// every piece a chain of fused multiply-adds from its first term to its last, and the pieces are added in ascending order
// to what the element starts with. So the bits are the same on any number of threads and on any processor, and those of a
// row do not depend on the rows beside it.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/thread_pool.h"

namespace trencadis {

// A matrix, row-major: as the product takes it, or stored the other way round (transposed).
// ld: elements from one stored row to the next.
struct Operand {
  const float* at;
  int64_t ld;
  bool transposed;
};

inline Operand transposed(const Operand& x) { return {x.at, x.ld, !x.transposed}; }

// What the elements of a product start with; one of the two at most.
struct Start {
  bool result = false;          // what stands there
  const float* bias = nullptr;  // element n of a row of N
};

// Memory that products pack into. It is kept from one to the next, as large as the largest has asked for: blocks of
// this size that are freed go back to the system and come again as zeroed pages, a fault each.
class Workspace {
 public:
  float* take(int64_t floats);  // at least so many, at a multiple of 64 bytes; valid until the next take()

 private:
  struct alignas(64) Line {
    float at[16];
  };
  std::unique_ptr<Line[]> lines_;
  int64_t count_ = 0;
};

// c (M,N), row-major, = start + a (M,K) * b (K,N). c overlaps neither operand.
//
// On all threads of the pool; c has no gaps between its rows. For one caller at a time. Takes about
// min(M,N) * min(K,512) * 4 bytes of the workspace, and less than 1 MiB of each thread's stack.
void product(ThreadPool& pool, Workspace& workspace, float* c, const Operand& a, const Operand& b, int64_t M, int64_t N,
             int64_t K, const Start& start = {});

// On the calling thread, which it takes less than 1 MiB of stack from; ldc: elements from one row of c to the next. For
// operands that the cache holds.
void product(float* c, int64_t ldc, const Operand& a, const Operand& b, int64_t M, int64_t N, int64_t K,
             const Start& start = {});

}  // namespace trencadis
