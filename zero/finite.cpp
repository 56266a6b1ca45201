#include "zero/finite.h"

#include <algorithm>
#include <bit>

#include "runtime/check.h"

namespace trencadis {

namespace {

// 1 for all bits of the exponent, 0 else: in 32-bit integers, so that a loop over it becomes vector instructions.
constexpr uint32_t not_finite(float value) { return (std::bit_cast<uint32_t>(value) & 0x7f800000u) == 0x7f800000u; }

// use(begin, count of those that are not finite) for a block at a time, until it returns false.
template <typename Use>
void for_each_block(std::span<const float> values, Use use) {
  constexpr size_t kBlock = 4096;
  bool more = true;
  for (size_t begin = 0; more && begin < values.size(); begin += kBlock) {
    uint32_t count = 0;
    for (const float value : values.subspan(begin, std::min(kBlock, values.size() - begin))) count += not_finite(value);
    more = use(begin, count);
  }
}

}  // namespace

int64_t count_not_finite(std::span<const float> values) {
  int64_t sum = 0;
  for_each_block(values, [&](size_t, uint32_t count) {
    sum += count;
    return true;
  });
  return sum;
}

int64_t first_not_finite(std::span<const float> values) {
  int64_t first = -1;
  for_each_block(values, [&](size_t begin, uint32_t count) {
    if (count > 0)
      first = std::find_if(values.begin() + static_cast<int64_t>(begin), values.end(), not_finite) - values.begin();
    return count == 0;
  });
  return first;
}

std::string describe_element(const std::string& tensor, const Shape& shape, int64_t index, float value) {
  std::string place;
  for (size_t axis = shape.size(); axis-- > 0;) {
    place = fmt::format("{}{}{}", index % shape[axis], place.empty() ? "" : ",", place);
    index /= shape[axis];
  }
  return fmt::format("{}{} is {}", tensor, shape.empty() ? "" : "[" + place + "]", value);
}

}  // namespace trencadis
