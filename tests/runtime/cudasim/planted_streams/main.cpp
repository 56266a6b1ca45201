// Planted bugs in the use of streams, events and memory: a program that is right, and one mistake a name. Each must be
// caught, by which schedule stands in the table at the end; ThreadSanitizer catches every missing order under any.
//
//   planted_streams                 all names, each under every schedule in a process of its own, against the table
//   planted_streams NAME            one of them
//   planted_streams NAME SCHEDULE   runs it here: exit code 0 right numbers, 1 wrong ones, 97, 98 stopped by the simulator
//
// The program is two ZeRO-3 steps of one rank, in miniature: three streams, made in the engine's order, buffers from the
// pool, events at each hand-over.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/cuda/caching_pool.h"
#include "runtime/cuda/handles.h"
#include "runtime/cudasim/executor.h"
#include "tests/runtime/cudasim/planted_child.h"

using namespace trencadis;
using cudasim::enqueue;

namespace {

constexpr int kElements = 256, kSteps = 2;
constexpr size_t kBytes = kElements * sizeof(float);

std::string bug;
bool planted(const char* name) { return bug == name; }

cudaStream_t make_stream() {
  cudaStream_t stream = nullptr;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

// Work on `to` starts after what `from` holds now.
void hand_over(cudaStream_t from, cudaStream_t to) {
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CUDA_CHECK(cudaEventRecord(event, from));
  CUDA_CHECK(cudaStreamWaitEvent(to, event, 0));
  CUDA_CHECK(cudaEventDestroy(event));
}

float* pinned_floats() {
  void* data = nullptr;
  CUDA_CHECK(cudaMallocHost(&data, kBytes));
  return static_cast<float*>(data);
}

// A "kernel": out[i] = f(i) for all elements.
template <typename F>
void each(cudaStream_t stream, const char* name, float* out, F f) {
  enqueue(stream, name, [=] {
    for (int i = 0; i < kElements; ++i) out[i] = f(i);
  });
}

struct Rank {
  cudaStream_t compute = make_stream(), gather = make_stream(), reduce = make_stream();
  PoolGroup group{{Device::Kind::cuda, 0}};
  CachingPool pool{group, compute, {}};

  float* take() { return static_cast<float*>(pool.allocate(kBytes)); }
  void give(float* data) { pool.free(data, kBytes); }
};

float start_value(int i) { return static_cast<float>(i % 13); }

// What two steps make of one element: p = 2 m; g = p + 1; r = 3 g; m = m - r / 8.
float expected(int i) {
  float master = start_value(i);
  for (int step = 0; step < kSteps; ++step) master -= 3 * (2 * master + 1) / 8;
  return master;
}

int train() {
  Rank r;
  float* const master = r.take();
  float* const host = pinned_floats();
  for (int i = 0; i < kElements; ++i) host[i] = start_value(i);
  CUDA_CHECK(cudaMemcpyAsync(master, host, kBytes, cudaMemcpyHostToDevice, r.compute));
  if (!planted("pinned_reused_early")) CUDA_CHECK(cudaStreamSynchronize(r.compute));
  for (int i = 0; i < kElements; ++i) host[i] = -1;

  for (int step = 0; step < kSteps; ++step) {
    // The unit's parameters: a block of the pool, filled by the gather stream.
    float* const params = r.take();
    if (!planted("gather_too_early")) hand_over(r.compute, r.gather);
    each(r.gather, "gather", params, [=](int i) { return 2 * master[i]; });
    if (!planted("compute_before_gather")) hand_over(r.gather, r.compute);

    // Its gradients, reduced by the reduce stream.
    float *const gradient = r.take(), *const reduced = r.take();
    const auto backward = [&] { each(r.compute, "backward", gradient, [=](int i) { return params[i] + 1; }); };
    const auto hand_gradient_over = [&] {
      if (!planted("reduce_too_early")) hand_over(r.compute, r.reduce);
    };
    if (planted("event_recorded_early")) {
      hand_gradient_over();
      backward();
    } else {
      backward();
      hand_gradient_over();
    }
    each(r.reduce, "reduce", reduced, [=](int i) { return 3 * gradient[i]; });
    r.give(params);

    // A unit that is gathered ahead and then skipped: its block goes back after compute waited for the gather.
    float* const ahead = r.take();
    hand_over(r.compute, r.gather);
    each(r.gather, "gather ahead", ahead, [](int) { return 1000.0f; });
    if (!planted("released_before_gathered")) hand_over(r.gather, r.compute);
    r.give(ahead);

    float* const half = r.take();  // gets the block of the skipped unit
    each(r.compute, "half", half, [](int) { return 0.125f; });
    if (!planted("step_before_reduce")) hand_over(r.reduce, r.compute);
    each(r.compute, "step", master, [=](int i) { return master[i] - half[i] * reduced[i]; });
    for (float* block : {half, gradient, reduced}) r.give(block);
  }

  if (planted("host_reads_device") && master[0] == 42) return 2;
  if (planted("host_function_reads_device"))
    CUDA_CHECK(cudaLaunchHostFunc(
        r.compute, [](void* data) { *static_cast<float*>(data) += 1; }, master));
  if (planted("host_function_calls_cuda"))
    CUDA_CHECK(cudaLaunchHostFunc(
        r.compute, [](void*) { cudaDeviceSynchronize(); }, nullptr));
  CUDA_CHECK(cudaMemcpyAsync(host, master, kBytes, cudaMemcpyDeviceToHost, r.compute));
  if (!planted("result_not_waited_for")) CUDA_CHECK(cudaStreamSynchronize(r.compute));

  int wrong = 0;
  for (int i = 0; i < kElements; ++i) wrong += host[i] != expected(i);
  std::printf("%d of %d elements are wrong\n", wrong, kElements);
  CUDA_CHECK(cudaDeviceSynchronize());
  return wrong != 0;
}

// Two ranks, two collectives on a stream each.
int collectives() {
  const auto sum = [](const char* name) {
    return std::make_shared<cudasim::Rendezvous>(name, 2, [](cudasim::Rendezvous& both) {
      for (int party = 0; party < 2; ++party) both.as_party(party, [] {});
    });
  };
  const std::array collectives = {sum("reduce unit 0"), sum("reduce unit 1")};
  cudasim::HostThreads threads(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      const cudasim::HostThreads::Member member(threads);
      CUDA_CHECK(cudaSetDevice(rank));
      const cudaStream_t stream = make_stream();
      const bool swapped = planted("collectives_swapped") && rank == 1;
      for (const size_t unit : {swapped ? 1u : 0u, swapped ? 0u : 1u})
        if (!(planted("collective_skipped") && rank == 1 && unit == 1)) enqueue(stream, collectives[unit], rank);
      CUDA_CHECK(cudaStreamSynchronize(stream));
    });
  for (std::thread& rank : ranks) rank.join();
  return 0;
}

int run_here() { return std::max(collectives(), train()); }

using namespace trencadis::test;

const std::array<const char*, 3> kSchedules = {"eager", "lazy", "late"};
constexpr int kSeeds = 8;  // the program without a bug runs under these too
struct Row {
  const char* name;
  std::array<Verdict, 3> seen;  // under kSchedules
  bool is_race;                 // what ThreadSanitizer is for
};
// eager misses whatever the host happens to say in the right order. lazy runs the newest stream as early as it can, late
// the oldest: of two streams that should be ordered and are not, one of them gets the order wrong. And neither runs at all
// what nobody waits for any more (step_before_reduce: the reduction). The host's access to device memory is seen where
// nothing was enqueued since the last wait, or nothing runs when it is enqueued (device_memory.h).
const Row kTable[] = {
    {"none", {passes, passes, passes}, false},
    {"gather_too_early", {passes, wrong, wrong}, true},
    {"compute_before_gather", {passes, passes, wrong}, true},
    {"reduce_too_early", {passes, wrong, passes}, true},
    {"event_recorded_early", {passes, wrong, passes}, true},
    {"step_before_reduce", {passes, wrong, wrong}, true},
    {"released_before_gathered", {passes, passes, wrong}, true},
    {"pinned_reused_early", {passes, wrong, wrong}, true},
    {"result_not_waited_for", {passes, wrong, wrong}, true},
    {"host_reads_device", {passes, touched, touched}, true},
    {"host_function_reads_device", {touched, touched, touched}, false},
    {"host_function_calls_cuda", {stopped, stopped, stopped}, false},
    {"collectives_swapped", {stopped, stopped, stopped}, false},
    {"collective_skipped", {stopped, stopped, stopped}, false},
};

bool check(const Row& row) {
  bool as_expected = true;
  for (size_t i = 0; i < kSchedules.size(); ++i) {
    const bool seen_as_race = kThreads && row.is_race;
    if (row.seen[i] == touched && !kGuards && !seen_as_race) continue;  // only access rights see it
    std::string output;
    const int code = run_child(row.name, kSchedules[i], &output);
    const int wanted = seen_as_race ? race : row.seen[i];
    std::printf("%-28s %-6s %s\n", row.name, kSchedules[i], text_of(code));
    if (code == wanted) continue;
    as_expected = false;
    std::printf("  expected: %s. Its output:\n%s\n", text_of(wanted), output.c_str());
  }
  for (int seed = 0; row.name == std::string("none") && seed < kSeeds; ++seed) {
    std::string output;
    if (run_child(row.name, ("seed:" + std::to_string(seed)).c_str(), &output) == passes) continue;
    as_expected = false;
    std::printf("%-28s seed:%d does not pass:\n%s\n", row.name, seed, output.c_str());
  }
  return as_expected;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) {
    bug = argv[1];
    cudasim::set_schedule(cudasim::Schedule::parse(argv[2]));
    return run_here();
  }
  bool as_expected = true, found = false;
  for (const Row& row : kTable) {
    if (argc == 2 && std::strcmp(argv[1], row.name) != 0) continue;
    found = true;
    as_expected = check(row) && as_expected;
  }
  if (!found) std::printf("there is no planted bug of that name\n");
  return found && as_expected ? 0 : 1;
}
