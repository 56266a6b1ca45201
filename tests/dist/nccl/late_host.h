// A host communicator whose last message of each call is late, as MPI allows: a call that needs nothing more from others
// returns before its own part has left, and the part leaves at this rank's next call on the same communicator. A rank
// that never calls again keeps it forever; who waits for it gives up after a while, with an Error, so that a test ends.
//
// It has what dist/nccl uses of a host: all_gather, broadcast, barrier and split. split() leaves nothing behind, nor does
// the end of a communicator.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dist/communicator.h"
#include "runtime/check.h"

namespace trencadis::test {

class LateHost final : public Communicator {
 public:
  static std::vector<std::unique_ptr<Communicator>> make(int size, double patience_seconds) {
    const auto group = std::make_shared<Group>(size, patience_seconds);
    std::vector<std::unique_ptr<Communicator>> ranks;
    for (int r = 0; r < size; ++r) ranks.push_back(std::make_unique<LateHost>(group, r));
    return ranks;
  }

  struct Group {
    Group(int size, double patience_seconds) : patience(patience_seconds), arrived(static_cast<size_t>(size)) {}
    const std::chrono::duration<double> patience;
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::vector<std::string>> arrived;                   // by sender and call
    std::map<std::pair<size_t, int>, std::shared_ptr<Group>> parts;  // by call of split() and color
  };
  LateHost(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  ~LateHost() override {
    const std::lock_guard lock(group_->mutex);
    send();
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->arrived.size()); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    const int own[] = {color, key};
    std::vector<std::pair<int, int>> order;  // key and rank of those with this color
    std::unique_lock lock(group_->mutex);
    const std::vector<std::string> all = call(lock, {reinterpret_cast<const char*>(own), sizeof own}, -1, "split");
    send();
    for (int r = 0; r < size(); ++r) {
      int other[2];
      std::memcpy(other, all[static_cast<size_t>(r)].data(), sizeof other);
      if (other[0] == color) order.emplace_back(other[1], r);
    }
    std::sort(order.begin(), order.end());
    auto& part = group_->parts[{calls_, color}];
    if (!part) part = std::make_shared<Group>(static_cast<int>(order.size()), group_->patience.count());
    const auto me = std::find(order.begin(), order.end(), std::pair(key, rank_));
    return std::make_unique<LateHost>(part, static_cast<int>(me - order.begin()));
  }
  void all_gather(ConstView shard, View out, Stream& stream, CollectiveLabel label) override {
    stream.enqueue(label.text, [=, this] {
      const auto bytes = static_cast<size_t>(shard.bytes());
      std::unique_lock lock(group_->mutex);
      const auto all = call(lock, {static_cast<const char*>(shard.data), bytes}, -1, label.text);
      for (size_t r = 0; r < all.size(); ++r)
        std::memcpy(static_cast<char*>(out.data) + r * bytes, all[r].data(), bytes);
    });
  }
  void broadcast(View data, int root, Stream& stream, CollectiveLabel label) override {
    stream.enqueue(label.text, [=, this] {
      const auto bytes = static_cast<size_t>(data.bytes());
      const std::string own(static_cast<const char*>(data.data), bytes);
      std::unique_lock lock(group_->mutex);
      const auto all = call(lock, own, root, label.text);
      std::memcpy(data.data, all[static_cast<size_t>(root)].data(), bytes);
    });
  }
  void barrier(CollectiveLabel label) override {
    std::unique_lock lock(group_->mutex);
    call(lock, {}, -1, label.text);
  }
  void all_reduce(View, ReduceOp, Stream&, CollectiveLabel) override { throw Error("LateHost has no all_reduce"); }
  void reduce_scatter(View, View, bool, Stream&, CollectiveLabel) override {
    throw Error("LateHost has no reduce_scatter");
  }
  CommCounters counters() const override { return {}; }

 private:
  // One call: `own` goes to all, and comes back with what `root`, or each rank (-1), has sent.
  std::vector<std::string> call(std::unique_lock<std::mutex>& lock, std::string own, int root,
                                const std::string& label) {
    send();  // of the call before
    const size_t number = calls_++;
    held_.push_back(own);
    const auto missing = [&] {
      for (int r = 0; r < size(); ++r)
        if (r != rank_ && (root == -1 || r == root) && group_->arrived[static_cast<size_t>(r)].size() <= number)
          return r;
      return -1;
    };
    if (missing() != -1) {  // it waits inside the call, and so the message leaves
      send();
      if (!group_->changed.wait_for(lock, group_->patience, [&] { return missing() == -1; }))
        throw Error(fmt::format("rank {}: the message of rank {} in \"{}\" never came", rank_, missing(), label));
    }
    std::vector<std::string> all;
    for (int r = 0; r < size(); ++r) {
      const std::vector<std::string>& from = group_->arrived[static_cast<size_t>(r)];
      all.push_back(r == rank_ ? own : number < from.size() ? from[number] : "");
    }
    return all;
  }
  void send() {
    auto& arrived = group_->arrived[static_cast<size_t>(rank_)];
    for (std::string& part : held_) arrived.push_back(std::move(part));
    held_.clear();
    group_->changed.notify_all();
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
  size_t calls_ = 0;
  std::vector<std::string> held_;  // has not left yet
};

}  // namespace trencadis::test
