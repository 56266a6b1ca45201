#include "runtime/cuda/staging.h"

#include <algorithm>
#include <utility>

#include "runtime/check.h"
#include "runtime/cuda/handles.h"

namespace trencadis {

namespace {
constexpr int64_t kAlign = 64;
}

Staging::Staging(int64_t bytes) : bytes_(bytes) {
  CHECK(bytes >= 3 * kAlign, "staging memory of {} bytes; give at least {}", bytes, 3 * kAlign);
  CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&data_), static_cast<size_t>(bytes)));
}

Staging::~Staging() { cudaFreeHost(data_); }

Staging::Piece Staging::take(int64_t wanted) {
  const int64_t size = std::min(wanted, bytes_ / 3 / kAlign * kAlign);
  if (next_ + size > bytes_) next_ = 0;
  // The last copy that the piece overlaps, and with it all before it.
  size_t ended = 0;
  for (size_t i = 0; i < in_flight_.size(); ++i)
    if (in_flight_[i].begin < next_ + size && next_ < in_flight_[i].end) ended = i + 1;
  if (ended > 0) {
    in_flight_[ended - 1].event.wait_on_host();
    in_flight_.erase(in_flight_.begin(), in_flight_.begin() + static_cast<int64_t>(ended));
  }
  last_ = {data_ + next_, size};
  next_ += (size + kAlign - 1) / kAlign * kAlign;
  return last_;
}

void Staging::in_use_until(Event event) {
  const int64_t begin = last_.data - data_;
  in_flight_.push_back({begin, begin + last_.bytes, std::move(event)});
}

}  // namespace trencadis
