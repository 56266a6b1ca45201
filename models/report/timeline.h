// Timeline: what one rank did and held over a stretch of time, as files keep it.
//
// It is what the Tracer and the MemoryTracker recorded, with times made comparable between ranks (nanoseconds since a
// barrier at the start of the run) and live bytes instead of changes. One step of it per rank is timeline.json, which
// the report page draws; all of a run is the Chrome trace.
#pragma once

#include <string>
#include <vector>

#include "runtime/memory_tracker.h"
#include "runtime/trace.h"

namespace trencadis {

struct Timeline {
  struct Span {
    int lane, name;      // indices into lanes, names
    int64_t begin, end;  // ns
  };
  struct Sample {
    int64_t time;          // ns
    BytesByCategory live;  // from this moment on
  };

  std::vector<std::string> lanes, names;
  std::vector<Span> spans;      // in the order in which they ended
  std::vector<Sample> samples;  // in the order of time

  // Appends what was recorded. `live` holds the live bytes before the first entry, and those after the last on return.
  void append(const std::vector<Tracer::Span>& recorded, const std::vector<MemoryTracker::Entry>& entries,
              Tracer::Clock::time_point zero, BytesByCategory& live);
  void append(const Timeline& other);
  size_t events() const { return spans.size() + samples.size(); }
  const std::string& name_of(const Span& span) const { return names[static_cast<size_t>(span.name)]; }
  const std::string& lane_of(const Span& span) const { return lanes[static_cast<size_t>(span.lane)]; }

  // The first span of this name, or null.
  const Span* find(const std::string& name) const;
  // What overlaps [begin, end]: spans whole, samples from the one in force at `begin` on.
  Timeline between(int64_t begin, int64_t end) const;
};

int64_t total(const BytesByCategory& bytes);

// At most about 2 * bins samples: of each stretch of time the largest and the last one.
std::vector<Timeline::Sample> thin(const std::vector<Timeline::Sample>& samples, int64_t begin, int64_t end, int bins);

// One JSON object on one line; reading it back throws std::exception where it is not one.
std::string to_json(const Timeline& timeline);
Timeline timeline_from_json(const std::string& text);

// timeline.json: the step that was kept, and each rank's text by to_json.
std::string step_file(int64_t step, const std::vector<std::string>& ranks);

}  // namespace trencadis
