#include "models/report/timeline.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>

namespace trencadis {

namespace {

// Gives texts numbers: the index of each in `texts`.
class Interner {
 public:
  explicit Interner(std::vector<std::string>& texts) : texts_(texts) {
    for (const std::string& text : texts) index_.emplace(text, static_cast<int>(index_.size()));
  }
  int operator()(const std::string& text) {
    const auto [place, is_new] = index_.emplace(text, static_cast<int>(texts_.size()));
    if (is_new) texts_.push_back(text);
    return place->second;
  }

 private:
  std::vector<std::string>& texts_;
  std::unordered_map<std::string, int> index_;
};

int64_t nanoseconds(Tracer::Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

}  // namespace

void Timeline::append(const std::vector<Tracer::Span>& recorded, const std::vector<MemoryTracker::Entry>& entries,
                      Tracer::Clock::time_point zero, BytesByCategory& live) {
  Interner lane(lanes), name(names);
  for (const Tracer::Span& span : recorded)
    spans.push_back({lane(span.lane), name(span.name), nanoseconds(span.begin - zero), nanoseconds(span.end - zero)});
  for (const MemoryTracker::Entry& entry : entries) {
    live[static_cast<size_t>(entry.category)] += entry.delta;
    samples.push_back({nanoseconds(entry.time - zero), live});
  }
}

void Timeline::append(const Timeline& other) {
  Interner lane(lanes), name(names);
  for (const Span& span : other.spans)
    spans.push_back({lane(other.lane_of(span)), name(other.name_of(span)), span.begin, span.end});
  samples.insert(samples.end(), other.samples.begin(), other.samples.end());
}

const Timeline::Span* Timeline::find(const std::string& wanted) const {
  const auto found = std::find_if(spans.begin(), spans.end(), [&](const Span& s) { return name_of(s) == wanted; });
  return found == spans.end() ? nullptr : &*found;
}

Timeline Timeline::between(int64_t begin, int64_t end) const {
  Timeline part;
  Interner lane(part.lanes), name(part.names);
  for (const Span& span : spans)
    if (span.begin < end && span.end > begin)
      part.spans.push_back({lane(lane_of(span)), name(name_of(span)), span.begin, span.end});
  for (const Sample& sample : samples) {
    if (sample.time > end) break;
    // Of those before the beginning only the last is in force.
    if (sample.time <= begin && !part.samples.empty()) part.samples.pop_back();
    part.samples.push_back({std::max(begin, sample.time), sample.live});
  }
  return part;
}

int64_t total(const BytesByCategory& bytes) { return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}); }

std::vector<Timeline::Sample> thin(const std::vector<Timeline::Sample>& samples, int64_t begin, int64_t end, int bins) {
  if (static_cast<int>(samples.size()) <= 2 * bins || end <= begin) return samples;
  std::vector<Timeline::Sample> kept;
  const auto bin_of = [&](const Timeline::Sample& s) {
    return static_cast<int64_t>(static_cast<double>(s.time - begin) / static_cast<double>(end - begin) * bins);
  };
  for (size_t first = 0; first < samples.size();) {
    size_t last = first, largest = first;
    while (last + 1 < samples.size() && bin_of(samples[last + 1]) == bin_of(samples[first])) {
      ++last;
      if (total(samples[last].live) > total(samples[largest].live)) largest = last;
    }
    kept.push_back(samples[largest]);
    if (largest != last) kept.push_back(samples[last]);
    first = last + 1;
  }
  return kept;
}

// Numbers lie in flat arrays, which are short to write: spans as lane, name, begin, end; samples as time, live bytes.
std::string to_json(const Timeline& timeline) {
  nlohmann::ordered_json json;
  json["lanes"] = timeline.lanes;
  json["names"] = timeline.names;
  std::vector<int64_t> numbers;
  for (const Timeline::Span& s : timeline.spans) numbers.insert(numbers.end(), {s.lane, s.name, s.begin, s.end});
  json["spans"] = numbers;
  numbers.clear();
  for (const Timeline::Sample& s : timeline.samples) {
    numbers.push_back(s.time);
    numbers.insert(numbers.end(), s.live.begin(), s.live.end());
  }
  json["memory"] = numbers;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Timeline timeline_from_json(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  Timeline timeline;
  timeline.lanes = json.at("lanes").get<std::vector<std::string>>();
  timeline.names = json.at("names").get<std::vector<std::string>>();
  const auto spans = json.at("spans").get<std::vector<int64_t>>();
  for (size_t i = 0; i + 4 <= spans.size(); i += 4) {
    const Timeline::Span span = {static_cast<int>(spans[i]), static_cast<int>(spans[i + 1]), spans[i + 2],
                                 spans[i + 3]};
    if (span.lane < 0 || static_cast<size_t>(span.lane) >= timeline.lanes.size() || span.name < 0 ||
        static_cast<size_t>(span.name) >= timeline.names.size())
      throw std::out_of_range("a span without a name");
    timeline.spans.push_back(span);
  }
  const auto memory = json.at("memory").get<std::vector<int64_t>>();
  constexpr size_t stride = 1 + kMemoryCategories;
  for (size_t i = 0; i + stride <= memory.size(); i += stride) {
    Timeline::Sample sample = {memory[i], {}};
    std::copy_n(memory.begin() + static_cast<int64_t>(i) + 1, kMemoryCategories, sample.live.begin());
    timeline.samples.push_back(sample);
  }
  return timeline;
}

std::string step_file(int64_t step, const std::vector<std::string>& ranks) {
  std::string text = "{\"step\":" + std::to_string(step) + ",\"ranks\":[\n";
  for (size_t r = 0; r < ranks.size(); ++r) text += ranks[r] + (r + 1 < ranks.size() ? ",\n" : "\n");
  return text + "]}\n";
}

}  // namespace trencadis
