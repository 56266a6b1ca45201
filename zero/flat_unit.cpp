#include "zero/flat_unit.h"

#include <algorithm>
#include <set>

namespace trencadis {

namespace {

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

FlatSegment::FlatSegment(std::vector<Parameter*> parameters, bool trainable, int world, DType compute, DType master,
                         DType reduction)
    : trainable_(trainable), compute_(compute), master_(master), reduction_(reduction), world_(world) {
  // The smallest of the three types decides how many elements make 16 bytes in each of them.
  const int64_t smallest = std::min({size_of(compute), size_of(master), size_of(reduction)});
  const int64_t alignment = kAlignmentBytes / smallest;
  int64_t offset = 0;
  for (Parameter* parameter : parameters) {
    const int64_t count = parameter->size();
    entries_.push_back({parameter, offset, count});
    CHECK(!__builtin_add_overflow(offset, round_up(count, alignment), &offset),
          "unit with more than 2^63 elements at {}", parameter->name);
  }
  shard_ = round_up((offset + world - 1) / world, alignment);
}

void FlatSegment::for_each_slice(FlatRange range, const std::function<void(const FlatSlice&)>& visit) const {
  for (const FlatEntry& entry : entries_) {
    const int64_t begin = std::max(range.begin, entry.offset);
    const int64_t end = std::min(range.end, entry.offset + entry.count);
    if (begin < end) visit({&entry, begin - entry.offset, begin, end - begin});
  }
}

void FlatSegment::for_each_pad(FlatRange range, const std::function<void(FlatRange)>& visit) const {
  int64_t at = range.begin;
  for_each_slice(range, [&](const FlatSlice& slice) {
    if (at < slice.offset) visit({at, slice.offset});
    at = slice.offset + slice.count;
  });
  if (at < range.end) visit({at, range.end});
}

FlatUnit::FlatUnit(const Unit& unit, int world) : name(unit.name) {
  for (bool trainable : {true, false}) {
    std::vector<Parameter*> part;
    for (Parameter* p : unit.parameters)
      if (p->trainable() == trainable) part.push_back(p);
    if (!part.empty()) segments.emplace_back(std::move(part), trainable, world);
  }
}

int64_t FlatUnit::padded() const {
  int64_t sum = 0;
  for (const FlatSegment& s : segments) sum += s.padded();
  return sum;
}

int64_t FlatUnit::trainable_padded() const {
  int64_t sum = 0;
  for (const FlatSegment& s : segments) sum += s.trainable() ? s.padded() : 0;
  return sum;
}

int64_t FlatUnit::shard() const {
  int64_t sum = 0;
  for (const FlatSegment& s : segments) sum += s.shard();
  return sum;
}

std::vector<FlatUnit> flatten(const std::vector<Unit>& units, int world) {
  std::set<const Parameter*> seen;
  std::vector<FlatUnit> flat;
  for (const Unit& unit : units) {
    for (const Parameter* p : unit.parameters)
      CHECK(seen.insert(p).second, "parameter {} is in two units, the second is {}; tie it inside one unit", p->name,
            unit.name);
    flat.emplace_back(unit, world);
  }
  return flat;
}

}  // namespace trencadis
