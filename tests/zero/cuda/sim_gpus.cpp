#include "sim_gpus.h"

#include "dist/nccl/nccl_communicator.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/streams.h"
#include "runtime/cudasim/executor.h"

namespace trencadis::test {

namespace {

class SimGpus final : public Devices {
 public:
  std::unique_ptr<Backend> make_backend(const Config&, int rank) override {
    CudaOptions cuda;
    cuda.device = rank;
    cuda.poison = true;
    return make_cuda_backend(cuda);
  }
  std::unique_ptr<Communicator> make_group(Context& context, Communicator& host, const CommOptions& options) override {
    NcclOptions nccl;
    nccl.comm = options;
    return make_nccl_communicator(context, host, nccl);
  }
  // The simulator knows the ranks, and so a deadlock among them.
  Around around_threads(int world) override {
    const auto announced = std::make_shared<cudasim::HostThreads>(world);
    return [announced](const std::function<void()>& body) {
      const cudasim::HostThreads::Member member(*announced);
      body();
    };
  }
  // The backend has one place where the host waits.
  int64_t host_waits(Context& context) override { return CudaStream::of(context.compute_stream()).waits().count(); }
};

}  // namespace

std::shared_ptr<Devices> sim_gpus() {
  static const auto all = std::make_shared<SimGpus>();
  return all;
}

std::vector<std::string> schedules() {
  if (kReduced) return {"lazy"};  // a race detector does not wait for bad luck
  std::vector<std::string> names = {"eager", "lazy", "late"};
  for (int seed = 1; seed <= 8; ++seed) names.push_back(fmt::format("seed:{}", seed));
  return names;
}

WithSchedule::WithSchedule(const std::string& name) : before_(cudasim::schedule().name()) {
  cudasim::set_schedule(cudasim::Schedule::parse(name));
}
WithSchedule::~WithSchedule() { cudasim::set_schedule(cudasim::Schedule::parse(before_)); }

}  // namespace trencadis::test
