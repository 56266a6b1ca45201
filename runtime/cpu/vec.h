// vec: sixteen f32 lanes, and the few functions on them that the CPU kernels need.
//
// Why our own: the compiler's vectoriser picks another formula for the head or tail of a loop, and libm's exp is a call
// per element. Here one formula serves every element, so a result depends neither on where an array starts nor on where
// it ends. Sixteen lanes are one AVX-512, two AVX2 or four NEON registers; the operators on a register are the vector
// extensions of GCC and clang. Intrinsics stand only where the language has no word: fma, sqrt, masked memory.
//
// Invariants:
//   - Only sums, products, fma, divisions, square roots and bit operations, each rounded once as IEEE-754 says: AVX2,
//     AVX-512 and NEON give the same bits. No reciprocal estimates, no flush to zero.
//   - sum() and max_of() fold the lanes in one fixed order: 8 apart, then 4, 2, 1.
//   - A lane that is NaN stays NaN in exp, tanh, log and sum. max and min give their second operand when one is NaN.
// The error bounds below are measured over all exponents by tests/runtime/test_vec.cpp.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

namespace trencadis::vec {

inline constexpr int64_t kLanes = 16;
#if defined(__AVX512F__)
inline constexpr int kRegisterBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kRegisterBytes = 32;
#else
inline constexpr int kRegisterBytes = 16;
#endif

// Sixteen values of T (float or int32_t). Everything below is always inlined, so that they live in registers.
template <typename T>
struct Lanes {
  typedef T Register __attribute__((vector_size(kRegisterBytes)));
  static constexpr int kRegisters = 64 / kRegisterBytes;
  Register part[kRegisters];

  Lanes() = default;
  // All lanes x; not explicit, so that `2.0f * v` can be written.
  [[gnu::always_inline]] Lanes(T x) {
    for (Register& p : part) p = x - Register{};
  }
  T operator[](int64_t lane) const { return part[lane / (kLanes / kRegisters)][lane % (kLanes / kRegisters)]; }
};
using F32 = Lanes<float>;
using I32 = Lanes<int32_t>;  // also what comparisons give: -1 in a lane where it holds, else 0

// -- operators, lane by lane ------------------------------------------------------------------------------------------

// r.part[i] = f(a.part[i], ...) for every register.
template <typename Result, typename F, typename... Operand>
[[gnu::always_inline]] inline Result map(F f, const Operand&... operand) {
  Result r;
  for (int i = 0; i < Result::kRegisters; ++i) r.part[i] = f(operand.part[i]...);
  return r;
}

[[gnu::always_inline]] inline F32 operator+(F32 a, F32 b) {
  return map<F32>([](auto x, auto y) { return x + y; }, a, b);
}
[[gnu::always_inline]] inline F32 operator-(F32 a, F32 b) {
  return map<F32>([](auto x, auto y) { return x - y; }, a, b);
}
[[gnu::always_inline]] inline F32 operator*(F32 a, F32 b) {
  return map<F32>([](auto x, auto y) { return x * y; }, a, b);
}
[[gnu::always_inline]] inline F32 operator/(F32 a, F32 b) {
  return map<F32>([](auto x, auto y) { return x / y; }, a, b);
}
[[gnu::always_inline]] inline F32& operator+=(F32& a, F32 b) { return a = a + b; }
[[gnu::always_inline]] inline F32 operator-(F32 a) {
  return map<F32>([](auto x) { return -x; }, a);
}
[[gnu::always_inline]] inline I32 operator<(F32 a, F32 b) {
  return map<I32>([](auto x, auto y) { return x < y; }, a, b);
}
[[gnu::always_inline]] inline I32 operator>(F32 a, F32 b) {
  return map<I32>([](auto x, auto y) { return x > y; }, a, b);
}

[[gnu::always_inline]] inline I32 operator+(I32 a, I32 b) {
  return map<I32>([](auto x, auto y) { return x + y; }, a, b);
}
[[gnu::always_inline]] inline I32 operator-(I32 a, I32 b) {
  return map<I32>([](auto x, auto y) { return x - y; }, a, b);
}
[[gnu::always_inline]] inline I32 operator&(I32 a, I32 b) {
  return map<I32>([](auto x, auto y) { return x & y; }, a, b);
}
[[gnu::always_inline]] inline I32 operator|(I32 a, I32 b) {
  return map<I32>([](auto x, auto y) { return x | y; }, a, b);
}
[[gnu::always_inline]] inline I32 operator<(I32 a, I32 b) {
  return map<I32>([](auto x, auto y) { return x < y; }, a, b);
}
[[gnu::always_inline]] inline I32 operator>(I32 a, I32 b) {
  return map<I32>([](auto x, auto y) { return x > y; }, a, b);
}
[[gnu::always_inline]] inline I32 operator<<(I32 a, int n) {
  return map<I32>([n](auto x) { return x << n; }, a);
}
[[gnu::always_inline]] inline I32 operator>>(I32 a, int n) {
  return map<I32>([n](auto x) { return x >> n; }, a);
}

// The same 64 bytes, read as the other type: no conversion of values.
[[gnu::always_inline]] inline I32 bits(F32 x) {
  return map<I32>([](auto part) { return I32::Register(part); }, x);
}
[[gnu::always_inline]] inline F32 from_bits(I32 x) {
  return map<F32>([](auto part) { return F32::Register(part); }, x);
}

[[gnu::always_inline]] inline I32 lane_numbers() {
  alignas(64) static constexpr int32_t numbers[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  I32 r;
  std::memcpy(&r, numbers, sizeof r);
  return r;
}

template <typename T>
[[gnu::always_inline]] inline Lanes<T> select(I32 mask, Lanes<T> yes, Lanes<T> no) {
  return map<Lanes<T>>([](auto m, auto y, auto n) { return m ? y : n; }, mask, yes, no);
}
[[gnu::always_inline]] inline F32 max(F32 a, F32 b) {
  return map<F32>([](auto x, auto y) { return x > y ? x : y; }, a, b);
}
[[gnu::always_inline]] inline F32 min(F32 a, F32 b) {
  return map<F32>([](auto x, auto y) { return x < y ? x : y; }, a, b);
}
[[gnu::always_inline]] inline I32 max(I32 a, I32 b) {
  return map<I32>([](auto x, auto y) { return x > y ? x : y; }, a, b);
}
[[gnu::always_inline]] inline F32 abs(F32 x) { return from_bits(bits(x) & 0x7fffffff); }

// -- memory, at any alignment -----------------------------------------------------------------------------------------

[[gnu::always_inline]] inline F32 load(const float* p) {
  F32 x;
  for (auto& part : x.part) {
    std::memcpy(&part, p, sizeof part);
    p += sizeof part / sizeof *p;
  }
  return x;
}
[[gnu::always_inline]] inline void store(float* p, F32 x) {
  for (const auto& part : x.part) {
    std::memcpy(p, &part, sizeof part);
    p += sizeof part / sizeof *p;
  }
}

// Lanes [0, n) from memory, the others `rest`; memory beyond n is not touched.
[[gnu::always_inline]] inline F32 load(const float* p, int64_t n, float rest = 0) {
  if (n >= kLanes) [[likely]]
    return load(p);
#if defined(__AVX512F__)
  F32 x;
  x.part[0] = _mm512_mask_loadu_ps(F32(rest).part[0], static_cast<__mmask16>((1u << n) - 1), p);
  return x;
#else
  float x[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) x[i] = i < n ? p[i] : rest;
  return load(x);
#endif
}
[[gnu::always_inline]] inline void store(float* p, F32 x, int64_t n) {
  if (n >= kLanes) [[likely]]
    return store(p, x);
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), x.part[0]);
#else
  for (int64_t i = 0; i < n; ++i) p[i] = x[i];
#endif
}

// For arrays that come from memory in order: asks for what stands kAhead elements further on, which the loop will reach
// when it has come. An address beyond the end is harmless: it only asks. Measured on a machine whose own prefetcher
// does little: bias_gelu_backward took 23 ms a step and takes 11, sum_squares of 124 million elements 136 and 46.
inline constexpr int64_t kAhead = 512;
[[gnu::always_inline]] inline void ask_ahead(const float* p) { __builtin_prefetch(p + kAhead); }
[[gnu::always_inline]] inline void ask_ahead_to_write(const float* p) { __builtin_prefetch(p + kAhead, 1); }

// The loop of every kernel: body(i, lanes) for i = 0, 16, ...; lanes is 16 until the tail, which has the same formula.
//   for_lanes(n, [&](int64_t i, int64_t lanes) { store(y + i, exp(load(x + i, lanes)), lanes); });
template <typename Body>
[[gnu::always_inline]] inline void for_lanes(int64_t n, Body&& body) {
  // One call of body, so that compilers inline it: load() and store() test for the tail with a well-predicted branch.
  for (int64_t i = 0; i < n; i += kLanes) body(i, n - i < kLanes ? n - i : kLanes);
}

// -- what the language has no operator for ----------------------------------------------------------------------------

// a * b + c, rounded once.
[[gnu::always_inline]] inline F32 fma(F32 a, F32 b, F32 c) {
  return map<F32>(
      [](auto x, auto y, auto z) {
#if defined(__AVX512F__)
        return _mm512_fmadd_ps(x, y, z);
#elif defined(__AVX2__) && defined(__FMA__)
        return _mm256_fmadd_ps(x, y, z);
#else
        // Compilers merge these lanes into one instruction where there is one (NEON: fmla).
        for (int i = 0; i < kRegisterBytes / 4; ++i) z[i] = __builtin_fmaf(x[i], y[i], z[i]);
        return z;
#endif
      },
      a, b, c);
}

[[gnu::always_inline]] inline F32 sqrt(F32 a) {
  return map<F32>(
      [](auto x) {
#if defined(__AVX512F__)
        return _mm512_maskz_sqrt_ps(0xffff, x);  // GCC 12 warns of its own plain form
#elif defined(__AVX2__) && defined(__FMA__)
        return _mm256_sqrt_ps(x);
#else
        for (int i = 0; i < kRegisterBytes / 4; ++i) x[i] = std::sqrt(x[i]);
        return x;
#endif
      },
      a);
}

// Folds the lanes with f in the order of every horizontal reduction here: (0,8) (1,9) ..., then 4, 2 and 1 apart.
template <typename T, typename F>
[[gnu::always_inline]] inline T fold(Lanes<T> x, F f) {
  typedef T Four __attribute__((vector_size(16)));
  // Through 16-byte quarters: every target has them, and the compiler turns the copies into register moves.
  Four q[4];
  std::memcpy(q, &x, sizeof q);
  const Four low = f(q[0], q[2]), high = f(q[1], q[3]);
  const Four four = f(low, high);
  const Four swapped = __builtin_shufflevector(four, four, 2, 3, 0, 1);
  const Four two = f(four, swapped);
  const Four one = f(two, Four(__builtin_shufflevector(two, two, 1, 0, 3, 2)));
  return one[0];
}
[[gnu::always_inline]] inline float sum(F32 x) {
  return fold(x, [](auto a, auto b) { return a + b; });
}
[[gnu::always_inline]] inline float max_of(F32 x) {
  return fold(x, [](auto a, auto b) { return a > b ? a : b; });
}
[[gnu::always_inline]] inline int32_t max_of(I32 x) {
  return fold(x, [](auto a, auto b) { return a > b ? a : b; });
}

// -- sixteen by sixteen -----------------------------------------------------------------------------------------------

// One step of transpose(): of every two rows kApart from each other, the upper's lanes right and the lower's lanes left
// change places, in groups of kApart lanes.
template <int kApart>
[[gnu::always_inline]] inline void exchange(F32 (&rows)[kLanes]) {
  constexpr int kInRegister = kRegisterBytes / 4;
  for (int i = 0; i < kLanes; ++i) {
    if (i & kApart) continue;
    F32 &upper = rows[i], &lower = rows[i + kApart];
    if constexpr (kApart >= kInRegister) {
      constexpr int kStep = kApart / kInRegister;  // whole registers
      for (int p = 0; p < F32::kRegisters; ++p)
        if (!(p & kStep)) std::swap(upper.part[p + kStep], lower.part[p]);
    } else {
      for (int p = 0; p < F32::kRegisters; ++p) {
        const auto a = upper.part[p], b = lower.part[p];
        [&]<int... kLane>(std::integer_sequence<int, kLane...>) __attribute__((always_inline)) {
          upper.part[p] = __builtin_shufflevector(a, b, (kLane & kApart ? kInRegister + kLane - kApart : kLane)...);
          lower.part[p] = __builtin_shufflevector(a, b, (kLane & kApart ? kInRegister + kLane : kLane + kApart)...);
        }
        (std::make_integer_sequence<int, kInRegister>());
      }
    }
  }
}

// Lane j of row i and lane i of row j change places. Four steps: quarters of the square, then quarters of those, ...
// (Eklundh 1972).
[[gnu::always_inline]] inline void transpose(F32 (&rows)[kLanes]) {
  exchange<8>(rows);
  exchange<4>(rows);
  exchange<2>(rows);
  exchange<1>(rows);
}

// -- exp, tanh, log ------------------------------------------------------------------------------------------------

// x = n ln 2 + r with n an integer and |r| <= ln 2 / 2, for |x| < 2^20.
struct Reduced {
  I32 n;
  F32 n_value, r;
};
[[gnu::always_inline]] inline Reduced reduce_by_ln2(F32 x) {
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the sum.
  const F32 magic = 12582912.0f;
  const F32 shifted = fma(x, 1.44269504f, magic);
  const F32 n = shifted - magic;
  // ln 2 in two pieces, the first of 9 bits (Cody and Waite): n times it is exact.
  F32 r = fma(n, -0.693359375f, x);
  r = fma(n, 2.12194440e-4f, r);
  return {bits(shifted) - bits(magic), n, r};
}

// exp(r) - 1 for |r| <= ln 2 / 2: r + r^2 q(r). The coefficients are those of Cephes' expf (S. Moshier).
[[gnu::always_inline]] inline F32 expm1_reduced(F32 r) {
  F32 q = 1.9875691500e-4f;
  q = fma(q, r, 1.3981999507e-3f);
  q = fma(q, r, 8.3334519073e-3f);
  q = fma(q, r, 4.1665795894e-2f);
  q = fma(q, r, 1.6666665459e-1f);
  q = fma(q, r, 5.0000001201e-1f);
  return fma(q, r * r, r);
}

// 2^n for -126 <= n <= 127.
[[gnu::always_inline]] inline F32 power_of_two(I32 n) { return from_bits((n + 127) << 23); }

// e^x, within 1.1 ulp; subnormal results are rounded, not flushed. Above 88.72 inf, below -103.98 zero, NaN stays NaN.
[[gnu::always_inline]] inline F32 exp(F32 x) {
  // Comparisons with NaN are false, so that it passes both lines.
  const F32 lowest = -105.0f, highest = 89.0f;
  x = select(x < lowest, lowest, x);
  x = select(x > highest, highest, x);
  const Reduced y = reduce_by_ln2(x);
  const F32 p = expm1_reduced(y.r) + 1.0f;
  // 2^n in two factors: n reaches 128 and -151, which one float's exponent cannot hold.
  const I32 half = y.n >> 1;
  return p * power_of_two(half) * power_of_two(y.n - half);
}

// tanh x = e / (e + 2) with e = exp(2|x|) - 1, within 3 ulp, also near 0 where it is x. +-inf gives +-1, NaN stays NaN.
[[gnu::always_inline]] inline F32 tanh(F32 x) {
  F32 z = abs(x) + abs(x);
  const F32 highest = 40.0f;  // e / (e + 2) has long been 1 in f32
  z = select(z > highest, highest, z);
  const Reduced y = reduce_by_ln2(z);
  const F32 scale = power_of_two(y.n);
  const F32 e = fma(scale, expm1_reduced(y.r), scale - 1.0f);
  const F32 t = e / (e + 2.0f);
  return from_bits(bits(t) | (bits(x) & I32(std::bit_cast<int32_t>(0x80000000u))));
}

// -1 in the lanes that are NaN.
[[gnu::always_inline]] inline I32 is_nan(F32 x) { return bits(abs(x)) > I32(0x7f800000); }

// ln x, within 1.1 ulp, subnormal x included. 0 gives -inf, inf inf, what is negative NaN.
[[gnu::always_inline]] inline F32 log(F32 x) {
  const float inf = std::numeric_limits<float>::infinity();
  const I32 tiny = x < F32(std::numeric_limits<float>::min());
  const F32 normal = select(tiny, x * 0x1p23f, x);
  // |x| = m 2^e with m in [sqrt(1/2), sqrt(2)): subtracting the bits of sqrt(1/2) leaves e in the exponent's place.
  const I32 from_root = (bits(normal) & I32(0x7fffffff)) - I32(0x3f3504f3);
  const F32 m = from_bits((from_root & I32(0x007fffff)) + I32(0x3f3504f3));
  const I32 exponent = (from_root >> 23) - (tiny & I32(23));
  // An integer that small, as a float: in the low bits of 1.5 * 2^23.
  const F32 magic = 12582912.0f, e = from_bits(bits(magic) + exponent) - magic;
  // ln m = z - z^2/2 + z^3 q(z), z = m - 1. The coefficients are those of Cephes' logf (S. Moshier).
  const F32 z = m - 1.0f, square = z * z;
  F32 q = 7.0376836292e-2f;
  q = fma(q, z, -1.1514610310e-1f);
  q = fma(q, z, 1.1676998740e-1f);
  q = fma(q, z, -1.2420140846e-1f);
  q = fma(q, z, 1.4249322787e-1f);
  q = fma(q, z, -1.6668057665e-1f);
  q = fma(q, z, 2.0000714765e-1f);
  q = fma(q, z, -2.4999993993e-1f);
  q = fma(q, z, 3.3333331174e-1f);
  // ln 2 in two pieces, as above.
  F32 small = fma(e, -2.12194440e-4f, q * z * square);
  small = fma(square, -0.5f, small);
  F32 y = fma(e, 0.693359375f, z + small);
  y = select(x < F32(inf), y, x);  // inf; NaN too
  y = select(x > F32(0.0f), y, select(x < F32(0.0f), F32(std::numeric_limits<float>::quiet_NaN()), F32(-inf)));
  return select(is_nan(x), x, y);
}

}  // namespace trencadis::vec
