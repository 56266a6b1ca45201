// CUDA's atomic functions, with its relaxed order: they are indivisible, and order no other memory. The compiler's own
// atomic operations are used, so that ThreadSanitizer knows them for what they are.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace trencadis::cudasim {

// new = change(old), indivisibly, on any plain type of 2, 4 or 8 bytes; returns old.
template <typename T, typename Change>
T atomic_change(T* address, Change change) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
  Bits* bits = reinterpret_cast<Bits*>(address);
  Bits before = __atomic_load_n(bits, __ATOMIC_RELAXED);
  while (true) {
    T old;
    std::memcpy(static_cast<void*>(&old), &before, sizeof old);
    const T changed = change(old);
    Bits after;
    std::memcpy(&after, static_cast<const void*>(&changed), sizeof after);
    if (__atomic_compare_exchange_n(bits, &before, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return old;
  }
}

}  // namespace trencadis::cudasim

template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return trencadis::cudasim::atomic_change(address, [value](T old) { return static_cast<T>(old + value); });
}
template <typename T>
T atomicSub(T* address, std::type_identity_t<T> value) {
  return trencadis::cudasim::atomic_change(address, [value](T old) { return static_cast<T>(old - value); });
}
template <typename T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "CUDA has atomicMin and atomicMax of integers only");
  return trencadis::cudasim::atomic_change(address, [value](T old) { return value < old ? value : old; });
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "CUDA has atomicMin and atomicMax of integers only");
  return trencadis::cudasim::atomic_change(address, [value](T old) { return old < value ? value : old; });
}
template <typename T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
  return trencadis::cudasim::atomic_change(address, [value](T old) { return static_cast<T>(old & value); });
}
template <typename T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return trencadis::cudasim::atomic_change(address, [value](T old) { return static_cast<T>(old | value); });
}
template <typename T>
T atomicXor(T* address, std::type_identity_t<T> value) {
  return trencadis::cudasim::atomic_change(address, [value](T old) { return static_cast<T>(old ^ value); });
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return trencadis::cudasim::atomic_change(address, [value](T) { return value; });
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "CUDA has atomicCAS of integers only");
  return trencadis::cudasim::atomic_change(address, [=](T old) { return old == expected ? value : old; });
}
// old < limit ? old + 1 : 0, by which the last block to finish recognises itself.
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return trencadis::cudasim::atomic_change(address, [limit](unsigned old) { return old >= limit ? 0u : old + 1; });
}
