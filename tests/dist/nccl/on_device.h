// The tests of communicators work on host arrays. OnDevice lends them a communicator of a GPU: each call copies its
// arrays to device memory, runs the collective there, waits, and copies the result back. What goes wrong while it waits
// comes out of the test's stream, as it does from a host's communicator.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "dist/communicator.h"
#include "runtime/check.h"
#include "runtime/context.h"
#include "runtime/storage.h"

namespace trencadis::test {

class OnDevice final : public Communicator {
 public:
  // Both live as long as this and what split() makes of it.
  OnDevice(Context& context, Communicator& inner)
      : context_(context), inner_(&inner), stream_(context.make_stream("collectives")) {}
  OnDevice(Context& context, std::unique_ptr<Communicator> inner) : OnDevice(context, *inner) {
    owned_ = std::move(inner);
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<OnDevice>(context_, inner_->split(color, key));
  }
  void barrier(CollectiveLabel label) override { inner_->barrier(std::move(label)); }
  CommCounters counters() const override { return inner_->counters(); }

  void all_reduce(View data, ReduceOp op, Stream& stream, CollectiveLabel label) override {
    const Copy copy = to_device(data);
    inner_->all_reduce(copy.view, op, *stream_, std::move(label));
    finish(stream, {{data, copy}});
  }
  void reduce_scatter(View in, View shard, bool accumulate, Stream& stream, CollectiveLabel label) override {
    const Copy all = to_device(in), part = piece(shard, in, all);
    inner_->reduce_scatter(all.view, part.view, accumulate, *stream_, std::move(label));
    finish(stream, {{in, all}, {shard, part}});  // the input too: it must come back as it was
  }
  void all_gather(ConstView shard, View out, Stream& stream, CollectiveLabel label) override {
    const Copy all = to_device(out), part = piece(shard, out, all);
    inner_->all_gather(part.view, all.view, *stream_, std::move(label));
    finish(stream, {{out, all}});
  }
  void broadcast(View data, int root, Stream& stream, CollectiveLabel label) override {
    const Copy copy = to_device(data);
    inner_->broadcast(copy.view, root, *stream_, std::move(label));
    finish(stream, {{data, copy}});
  }

 private:
  struct Copy {
    std::shared_ptr<Storage> storage;
    View view;
  };
  struct Back {
    View host;
    Copy device;
  };

  Copy to_device(ConstView host) {
    auto storage = Storage::create(context_, host.bytes(), MemoryCategory::communication, "a test's array");
    const View view(storage->data(), host.dtype, host.size);
    if (host.size > 0) context_.copy_from_host(view, host.data);
    stream_->wait(context_.compute_stream().record());
    return {std::move(storage), view};
  }
  // The device's part, where the host's is a part of `host_all`; else a copy of its own.
  Copy piece(ConstView host, ConstView host_all, const Copy& all) {
    const auto *p = static_cast<const char*>(host.data), *a = static_cast<const char*>(host_all.data);
    if (host.dtype != host_all.dtype || p < a || p + host.bytes() > a + host_all.bytes()) return to_device(host);
    return {all.storage, View(static_cast<char*>(all.view.data) + (p - a), host.dtype, host.size)};
  }
  void finish(Stream& stream, std::initializer_list<Back> results) {
    try {
      stream_->synchronize();
      for (const Back& result : results)
        if (result.host.size > 0) context_.copy_to_host(result.host.data, result.device.view);
    } catch (const Error& error) {
      // Its text, not the exception: ThreadSanitizer does not see how libstdc++ counts who shares one among threads.
      stream.enqueue("collective", [text = std::string(error.what())] { throw Error(text); });
    }
  }

  Context& context_;
  std::unique_ptr<Communicator> owned_;
  Communicator* const inner_;
  const std::unique_ptr<Stream> stream_;
};

}  // namespace trencadis::test
