// Products of small matrices by the tensor cores of one warp: D = A B + C, A (16,K) by rows, B (K,8) by columns.
//
// All 32 lanes call together; each holds a part of every matrix in its registers ("fragments"). With g = lane / 4 and
// t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16" and "mma.m16n8k8"):
//   C, D  (16,8), f32   [0] (g, 2t)  [1] (g, 2t+1)  [2] (g+8, 2t)  [3] (g+8, 2t+1)
//   bf16, K = 16, two elements a register, the lower column (of A) or row (of B) in the low half:
//     A   [0] (g, 2t)    [1] (g+8, 2t)    [2] (g, 2t+8)    [3] (g+8, 2t+8)
//     B   [0] (2t, g)    [1] (2t+8, g)
//   tf32, K = 8, one element a register (its low 13 bits are not looked at):
//     A   [0] (g, t)     [1] (g+8, t)     [2] (g, t+4)     [3] (g+8, t+4)
//     B   [0] (t, g)     [1] (t+4, g)
// The simulator's build takes runtime/cudasim/device/mma.h instead.
#pragma once

#include <cstdint>

namespace trencadis {

// bf16: D = A B + C, summed in f32.
__device__ inline void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                    const float (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// tf32: D = A B + C, summed in f32.
__device__ inline void mma_m16n8k8(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// x rounded to tf32 (10 bits of mantissa, to nearest, ties away from zero), as the register that mma_m16n8k8 wants.
__device__ inline uint32_t to_tf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

}  // namespace trencadis
