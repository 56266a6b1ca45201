#include "runtime/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace trencadis {

namespace {

// tables[k][b]: the CRC of byte b followed by k zero bytes ("slicing by eight": eight bytes a round).
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) ? 0x82F63B78u : 0u);
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t b = 0; b < 256; ++b) tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xff];
  return tables;
}

constexpr Tables kTables = make_tables();
static_assert(std::endian::native == std::endian::little, "files and digests are little-endian");

// Eight more bytes, the first of them lowest. Processors of the last decade have an instruction for this polynomial; a
// chain of it takes 3 cycles a word, a fifth of what the tables take, and is faster than disks and memcpy are.
uint32_t update_word(uint32_t crc, uint64_t word) {
#if defined(__SSE4_2__)
  return static_cast<uint32_t>(__builtin_ia32_crc32di(crc, word));
#elif defined(__ARM_FEATURE_CRC32)
  return __crc32cd(crc, word);
#else
  word ^= crc;
  uint32_t next = 0;
  for (size_t k = 0; k < 8; ++k) next ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
  return next;
#endif
}

}  // namespace

void Crc32c::update(const void* data, size_t bytes) {
  const unsigned char* p = static_cast<const unsigned char*>(data);
  uint32_t crc = state_;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    crc = update_word(crc, word);
  }
  for (; bytes > 0; --bytes, ++p) crc = (crc >> 8) ^ kTables[0][(crc ^ *p) & 0xff];
  state_ = crc;
}

}  // namespace trencadis
