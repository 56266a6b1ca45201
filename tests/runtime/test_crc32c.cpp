// CRC-32C against published values and against the definition, bit by bit, at all lengths, cuts and alignments.
#include <doctest/doctest.h>

#include <numeric>
#include <string_view>
#include <vector>

#include "runtime/crc32c.h"

using namespace trencadis;

namespace {

uint32_t crc_of(const void* data, size_t bytes) {
  Crc32c crc;
  crc.update(data, bytes);
  return crc.value();
}

uint32_t by_definition(const unsigned char* data, size_t bytes) {
  uint32_t crc = 0xffffffffu;
  for (size_t i = 0; i < bytes; ++i) {
    crc ^= data[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82F63B78u : 0u);
  }
  return ~crc;
}

}  // namespace

TEST_CASE("CRC-32C: the examples of RFC 3720, B.4, and the check value of the catalogues") {
  const std::vector<unsigned char> zeros(32, 0), ones(32, 0xff);
  std::vector<unsigned char> up(32);
  std::iota(up.begin(), up.end(), static_cast<unsigned char>(0));
  const std::vector<unsigned char> down(up.rbegin(), up.rend());
  CHECK(crc_of(zeros.data(), 32) == 0x8A9136AAu);
  CHECK(crc_of(ones.data(), 32) == 0x62A8AB43u);
  CHECK(crc_of(up.data(), 32) == 0x46DD794Eu);
  CHECK(crc_of(down.data(), 32) == 0x113FDB5Cu);
  constexpr std::string_view digits = "123456789";
  CHECK(crc_of(digits.data(), digits.size()) == 0xE3069283u);
  CHECK(crc_of(nullptr, 0) == 0u);
}

TEST_CASE("CRC-32C: equal to its definition wherever the data begins, ends and is cut") {
  std::vector<unsigned char> data(200);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i * i * 31 + i / 3);
  for (size_t first = 0; first < 9; ++first)
    for (size_t bytes = 0; bytes <= 64; ++bytes) {
      const uint32_t expected = by_definition(data.data() + first, bytes);
      CHECK(crc_of(data.data() + first, bytes) == expected);
      Crc32c cut;
      cut.update(data.data() + first, bytes / 3);
      cut.update(data.data() + first + bytes / 3, bytes - bytes / 3);
      CHECK(cut.value() == expected);
    }
}
