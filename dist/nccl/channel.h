// Owners of what NCCL gives: a communicator of its own, and the group of ranks that several of them may share.
#pragma once

#include <nccl.h>

#include <memory>
#include <string>
#include <vector>

#include "dist/nccl/agreement.h"
#include "dist/nccl/nccl_communicator.h"

namespace trencadis {

// Throws Error with the call and what NCCL says about it.
#define NCCL_CHECK(call)                                                                      \
  do {                                                                                        \
    const ncclResult_t nccl_status_ = (call);                                                 \
    CHECK(nccl_status_ == ncclSuccess, "{}: {}: {}", #call, ncclGetErrorString(nccl_status_), \
          ncclGetLastError(nullptr));                                                         \
  } while (0)

// One NCCL communicator. Aborted, it stays so.
class NcclChannel {
 public:
  // Collective over the ranks of `agreement`, which carries the id.
  NcclChannel(Agreement& agreement, int rank, int size);
  ~NcclChannel();
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  ncclComm_t get() const { return comm_; }  // null after abort()
  void abort();                             // what is queued on streams ends without a result
  std::string error() const;                // what NCCL found out while working; "" while all is well

  // What comes next on `stream` comes after all that was issued here on other streams.
  void enter(Stream& stream);
  Event leave(Stream& stream);

 private:
  ncclComm_t comm_ = nullptr;
  Stream* last_stream_ = nullptr;
  Event last_;
};

// The ranks that a communicator and its duplicates have in common.
struct NcclGroup {
  NcclGroup(Context& context_, std::unique_ptr<Communicator> host_, const NcclOptions& options_,
            const AbortFlag* abort_);
  // Ends all collectives of this rank, and tells the other ranks. The first text stays.
  void fail(const std::string& text);
  std::shared_ptr<NcclChannel> make_channel();  // collective

  Context& context;
  const NcclOptions options;
  const AbortFlag* const abort;
  const std::unique_ptr<Communicator> host;  // for splitting
  Agreement agreement;
  std::string failure;    // of this rank's communicators: they make no more calls
  int communicators = 0;  // made so far: number of the next one

 private:
  std::vector<std::weak_ptr<NcclChannel>> channels_;
};

}  // namespace trencadis
