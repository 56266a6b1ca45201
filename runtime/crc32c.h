// CRC-32C (Castagnoli, polynomial 0x1EDC6F41 reflected): digests of parameters and checksums of files. RFC 3720, B.4.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trencadis {

class Crc32c {
 public:
  void update(const void* data, size_t bytes);
  uint32_t value() const { return ~state_; }

 private:
  uint32_t state_ = 0xffffffffu;
};

}  // namespace trencadis
