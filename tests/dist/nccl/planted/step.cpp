// The program in which the bugs are planted: two steps of ZeRO-3 on two ranks in miniature, with everything that the
// engine does at its hand-overs between streams. A unit has kShard elements on each rank.
//
//   master m (own shard)                compute
//   params p = all ranks' m             gather stream, communicator 0
//   gradient g = p + (rank + 1)         compute; twice, as two micro-batches
//   shard s = sum of g, then s += sum   reduce stream, communicator 1
//   m = m + s                           compute
//
// With two ranks a step makes m <- m + 2 (2 m + 3) = 5 m + 6, in whole numbers: exact in any order.
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "../late_host.h"
#include "../sim_ranks.h"
#include "planted.h"
#include "runtime/cuda/handles.h"
#include "runtime/cuda/streams.h"
#include "runtime/storage.h"

namespace trencadis::planted {

namespace {

constexpr int64_t kShard = 96;
constexpr int kRanks = 2, kUnits = 2, kSteps = 2, kMicroBatches = 2;

float start_value(int rank, int unit, int64_t i) { return static_cast<float>((rank * 7 + unit * 3 + i) % 11); }

float expected(int rank, int unit, int64_t i) {
  float master = start_value(rank, unit, i);
  for (int step = 0; step < kSteps; ++step) master = 5 * master + 6;
  return master;
}

std::string label(const char* what, int unit) { return fmt::format("{} h.{}", what, unit); }

class Rank {
 public:
  explicit Rank(test::SimRank& rank)
      : context_(rank.context),
        me_(rank.comm.rank()),
        odd_(me_ == 1),
        gather_(context_.make_stream("gather")),
        reduce_(context_.make_stream("reduce")),
        gather_comm_(rank.comm.duplicate()),
        reduce_comm_(rank.comm.duplicate()),
        bias_(take(kRanks * kShard)) {
    context_.kernels().fill(view(bias_), static_cast<float>(me_ + 1));
    for (int unit = 0; unit < kUnits; ++unit) {
      master_.push_back(take(kShard));
      sum_.push_back(take(kShard));
    }
  }

  int train() {
    put_start_values();
    for (int step = 0; step < kSteps; ++step) {
      for (int micro = 0; micro < kMicroBatches; ++micro) micro_batch(micro > 0);
      if (!planted("step_before_reduce")) compute().wait(reduced_);
      for (int unit = 0; unit < kUnits; ++unit) kernels().add(view(master_[at(unit)]), view(sum_[at(unit)]));
      finish_reduction();
      if (planted("rank_throws") && odd_ && step == 0) throw Error("the disk is full");
    }
    // Ranks compare their calls beside the work, and this waits for it: no run ends before its calls were compared.
    reduce_comm_->barrier({"end of training"});
    return count_wrong();
  }

 private:
  using Block = std::shared_ptr<Storage>;

  static size_t at(int unit) { return static_cast<size_t>(unit); }
  Block take(int64_t n) { return Storage::create(context_, n * 4, MemoryCategory::communication, "block"); }
  static View view(const Block& block) { return {block->data(), DType::f32, block->bytes() / 4}; }
  Kernels& kernels() { return context_.kernels(); }
  Stream& compute() { return context_.compute_stream(); }

  // From pinned memory, which is used again.
  void put_start_values() {
    void* pinned = nullptr;
    CUDA_CHECK(cudaMallocHost(&pinned, kShard * sizeof(float)));
    auto* values = static_cast<float*>(pinned);
    for (int unit = 0; unit < kUnits; ++unit) {
      for (int64_t i = 0; i < kShard; ++i) values[i] = start_value(me_, unit, i);
      CUDA_CHECK(cudaMemcpyAsync(master_[at(unit)]->data(), values, kShard * sizeof(float), cudaMemcpyHostToDevice,
                                 CudaStream::of(compute()).handle()));
      if (!planted("pinned_reused_early")) compute().record().wait_on_host();
    }
    CUDA_CHECK(cudaFreeHost(pinned));
  }

  // Takes the block of a unit's parameters and fills it.
  Block gather(int unit) {
    Block params = take(kRanks * kShard);
    if (!planted("gather_too_early")) gather_->wait(compute().record());
    Communicator& comm = planted("communicators_exchanged") && odd_ ? *reduce_comm_ : *gather_comm_;
    const bool silent = planted("units_swapped_in_silence");
    comm.all_gather(view(master_[at(unit)]), view(params), *gather_,
                    {silent ? "parameters" : label("gather parameters of", unit), Traffic::training});
    gathered_ = gather_->record();
    return params;
  }

  void reduce(int unit, const Block& gradient, bool accumulate) {
    if (planted("collective_skipped") && odd_ && unit == 0 && accumulate) return;
    View in = view(gradient), out = view(sum_[at(unit)]);
    if (planted("counts_differ") && odd_) {
      in = in.slice(0, kShard);
      out = out.slice(0, kShard / 2);
    }
    if (planted("types_differ") && odd_) {
      in = View(in.data, DType::bf16, in.size);
      out = View(out.data, DType::bf16, out.size);
    }
    reduce_comm_->reduce_scatter(in, out, accumulate, *reduce_,
                                 {label("reduce gradients of", unit), Traffic::training});
  }

  // Gives the gradient that is on its way back to the pool.
  void finish_reduction() {
    if (!planted("released_before_reduced")) compute().wait(reduced_);
    in_flight_.reset();
  }

  void micro_batch(bool accumulate) {
    Block params[kUnits];
    // The other rank gathers unit 0 first, and NCCL cannot tell them apart.
    const bool swaps = odd_ && (planted("units_swapped") || planted("units_swapped_in_silence"));
    if (swaps) params[1] = gather(1);
    params[0] = gather(0);
    for (int unit = 0; unit < kUnits; ++unit) {
      if (!planted("compute_before_gather")) compute().wait(gathered_);
      Block gradient = take(kRanks * kShard);
      kernels().add(view(gradient), view(params[unit]), view(bias_));
      params[unit].reset();
      // The next unit's parameters are fetched while this one's gradients are reduced.
      const bool late = planted("other_order_of_communicators") && odd_;
      if (unit == 0 && !late && !swaps) params[1] = gather(1);
      if (!planted("reduce_too_early")) reduce_->wait(compute().record());
      finish_reduction();
      reduce(unit, gradient, accumulate);
      in_flight_ = std::move(gradient);
      reduced_ = reduce_->record();
      if (unit == 0 && late) params[1] = gather(1);
    }
  }

  int count_wrong() {
    if (planted("host_reads_device") && static_cast<float*>(master_[0]->data())[0] == 42) return 1;
    int wrong = 0;
    void* pinned = nullptr;
    CUDA_CHECK(cudaMallocHost(&pinned, kShard * sizeof(float)));
    const auto* values = static_cast<const float*>(pinned);
    for (int unit = 0; unit < kUnits; ++unit) {
      CUDA_CHECK(cudaMemcpyAsync(pinned, master_[at(unit)]->data(), kShard * sizeof(float), cudaMemcpyDeviceToHost,
                                 CudaStream::of(compute()).handle()));
      if (!planted("result_not_waited_for")) compute().synchronize();
      for (int64_t i = 0; i < kShard; ++i) wrong += values[i] != expected(me_, unit, i);
    }
    CUDA_CHECK(cudaFreeHost(pinned));
    return wrong;
  }

  Context& context_;
  const int me_;
  const bool odd_;  // the rank that does something else than the other
  std::unique_ptr<Stream> gather_, reduce_;
  std::unique_ptr<Communicator> gather_comm_, reduce_comm_;
  Block bias_;
  std::vector<Block> master_, sum_;  // by unit
  Event gathered_, reduced_;
  Block in_flight_;  // the gradient that is being reduced
};

}  // namespace

int train() {
  NcclOptions options;
  options.comm.timeout_seconds = 10;
  options.one_channel = planted("none_on_one_channel");
  std::atomic<int> wrong{0};
  const auto hosts = planted("none_on_late_host") ? test::LateHost::make(kRanks, /*patience_seconds=*/10)
                                                  : make_thread_communicators(kRanks, options.comm);
  test::on_sim_ranks(hosts, options, [&](test::SimRank& sim) {
    Rank rank(sim);
    wrong += rank.train();
  });
  std::printf("%d elements are wrong\n", wrong.load());
  return wrong > 0 ? 1 : 0;
}

}  // namespace trencadis::planted
