#include "dist/mpi/requests.h"

#include <algorithm>
#include <thread>

namespace trencadis {

void check_mpi(int rc, const char* call) {
  if (rc == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(rc, text, &length);
  throw Error(fmt::format("{} failed: {}", call, text));
}

Requests::~Requests() {
  for (MPI_Request& request : requests_) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&request);  // helps receives that nobody has answered
    MPI_Request_free(&request);
  }
}

MPI_Request* Requests::add(int peer) {
  peers_.push_back(peer);
  return &requests_.emplace_back(MPI_REQUEST_NULL);
}

bool Requests::test() {
  if (requests_.empty()) return false;
  int count = 0;
  done_.resize(requests_.size());
  check_mpi(
      MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(), MPI_STATUSES_IGNORE),
      "MPI_Testsome");
  if (count == 0) return false;
  size_t kept = 0;  // MPI has set the completed ones to null
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[kept] = requests_[i];
    peers_[kept++] = peers_[i];
  }
  requests_.resize(kept);
  peers_.resize(kept);
  return true;
}

std::vector<int> Requests::peers() const {
  std::vector<int> ranks = peers_;
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

void Backoff::pause() {
  using namespace std::chrono_literals;
  ++polls_;
  if (polls_ < 50) return;  // a peer that is here answers within microseconds
  if (polls_ < 100) return std::this_thread::yield();
  // A twentieth of the wait adds at most 5 % to it, and costs next to nothing.
  const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start_);
  std::this_thread::sleep_for(std::clamp<std::chrono::microseconds>(waited / 20, 20us, 200us));
}

}  // namespace trencadis
