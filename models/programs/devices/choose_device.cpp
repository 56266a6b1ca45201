#include "models/programs/devices/choose_device.h"

#include <algorithm>

#include "dist/on_all_ranks.h"
#include "runtime/cpu/backend.h"

namespace trencadis {

RankDevice choose_device(const TrainOptions& options, Communicator& world, const MpiEnvironment& mpi, int threads) {
  const std::string remedy = "; use --device cpu";
  RankDevice device;
  // auto is settled by what all hosts have.
  std::vector<int64_t> in_sight = {options.device == "cuda" || (options.device == "auto" && gpu_in_sight())};
  in_sight = exchange_words(world, in_sight, "GPUs in sight");
  const bool wanted = *std::min_element(in_sight.begin(), in_sight.end()) != 0;
  std::string why;
  if (wanted) device.gpus = gpu_support(why);
  const bool usable = device.gpus && device.gpus->device_count() > 0;
  if (wanted && why.empty() && !usable) why = "there is no GPU that CUDA can use";
  const std::vector<int64_t> all_usable = exchange_words(world, {usable}, "GPUs that can be used");
  if (options.device == "cuda")
    on_all_ranks(world, [&] {
      if (!usable) throw UsageError("--device cuda: " + why + remedy);
    });
  if (!wanted || *std::min_element(all_usable.begin(), all_usable.end()) == 0) {
    on_all_ranks(world, [&] {
      for (const auto& [given, flag] :
           {std::pair(options.tf32, "--tf32"), {options.attention != "auto", "--attention"}})
        if (given) throw UsageError(fmt::format("{} is about GPUs, and this run is on the CPU; leave it out", flag));
    });
    CpuOptions cpu;
    cpu.threads = options.threads > 0 ? static_cast<int>(options.threads) : threads;
    device.gpus = nullptr;
    device.backend = make_cpu_backend(cpu);
    device.description = fmt::format("cpu: {} thread{} a rank", cpu.threads, cpu.threads > 1 ? "s" : "");
    return device;
  }
  on_all_ranks(world, [&] {
    if (options.profile)
      throw UsageError(
          "--profile times kernels on the CPU; for those of a GPU run NVIDIA's nsys profile trencadis train ..., or "
          "use --device cpu");
  });
  const int local_rank = mpi.local_rank();
  device.gpus->start(world);
  on_all_ranks(world, [&] {
    GpuOptions gpu;
    if (local_rank >= device.gpus->device_count())
      throw UsageError(fmt::format(
          "this host has {} GPU{}, and rank {} is its rank number {}; start no more ranks a host "
          "than it has GPUs, or use --device cpu",
          device.gpus->device_count(), device.gpus->device_count() > 1 ? "s" : "", world.rank(), local_rank + 1));
    gpu.device = local_rank;
    gpu.tf32 = options.tf32;
    gpu.attention = options.attention;
    device.backend = device.gpus->make_backend(gpu);
    device.description = fmt::format("cuda: {}, one GPU a rank", device.gpus->device_name(local_rank));
  });
  return device;
}

}  // namespace trencadis
