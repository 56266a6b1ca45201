// Staging: a bounded piece of pinned host memory, through which host memory of any kind is copied to and from the device.
//
// Why: the device reads and writes host memory by itself, at any later time, only if it is pinned. Copies that go through
// here let their caller go on with its own memory at once.
//
// It is a ring. take() gives the next piece; a piece stays untouched until the event that was said for it has happened,
// and take() waits for that event only when it comes round to the piece again. So small copies, as a step makes them, do
// not make the host wait.
#pragma once

#include <cstdint>
#include <deque>

#include "runtime/stream.h"

namespace trencadis {

class Staging {
 public:
  explicit Staging(int64_t bytes);
  ~Staging();  // after the last copy
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  struct Piece {
    char* data = nullptr;
    int64_t bytes = 0;
  };
  // At most a third of the ring: then a piece and the next one never overlap. Throws the error of the stream it waits for.
  Piece take(int64_t wanted);
  // The piece taken last is in use until then. Events come in the order of one stream.
  void in_use_until(Event event);

 private:
  struct InFlight {
    int64_t begin, end;
    Event event;
  };
  char* data_ = nullptr;
  const int64_t bytes_;
  int64_t next_ = 0;
  Piece last_;
  std::deque<InFlight> in_flight_;  // oldest first
};

}  // namespace trencadis
