// A training run on ranks that are threads, and all that a test may want to know of it.
//
// Why: the promises of zero/ read "this configuration gives the same bits (or bytes) as that one", so a test writes
// down two Configs and compares two Runs. Every rank has a Context of its own, whose memory arrives as NaN and becomes
// NaN again when freed: a pad that is read, a gather not waited for or a buffer freed too early shows in the results.
//
// Ranks only collect; assertions are made by the test's own thread, on the Run.
#pragma once

#include <array>
#include <map>

#include "dist/communicator.h"
#include "models.h"
#include "runtime/cpu/backend.h"
#include "zero/engine.h"

#undef CHECK  // check.h's; a test wants doctest's
#include <doctest/doctest.h>

namespace trencadis::test {

// Instrumented builds run the same tests over fewer combinations.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kReduced = true;
#else
inline constexpr bool kReduced = false;
#endif

struct Config;

// What ranks compute on, and how their memory travels.
class Devices {
 public:
  virtual ~Devices() = default;
  virtual std::unique_ptr<Backend> make_backend(const Config& config, int rank) = 0;
  // The ranks of `host` as a communicator of the context's memory; null: host is one. Collective.
  virtual std::unique_ptr<Communicator> make_group(Context& context, Communicator& host,
                                                   const CommOptions& options) = 0;
  // Called before the ranks' threads start. Each thread then calls the result with what it does.
  using Around = std::function<void(const std::function<void()>& body)>;
  virtual Around around_threads(int world) = 0;
  // How often the host has waited for the device; 0 where it is the device.
  virtual int64_t host_waits(Context& context) = 0;
};
std::shared_ptr<Devices> cpus();

struct Config {
  MakeModel model = gpt();
  std::shared_ptr<Devices> devices = cpus();
  int stage = 0, world = 1, grad_accum = 1, prefetch = 1;
  bool reshard = true;
  float clip = 0, lr = 1e-2f, weight_decay = 0.1f;
  int threads = 1, misalign = 0;
  int steps = 5;
  // After every step, not only the last, the parameters' digest is taken. That waits for the gathers after the step, so
  // tests of what the next forward waits for do without.
  bool look_between_steps = true;
  CommOptions comm = {.timeout_seconds = 30};
  std::function<void(int rank, ZeroOptions&)> adjust;  // makes ranks differ

  std::string describe() const;
};

// Collectives take about this long, differently on each rank.
CommOptions delayed(int microseconds, uint64_t seed);
// What tests that delay collectives loop over: TRENCADIS_DELAY_SEED from the environment, or a few.
std::vector<uint64_t> delay_seeds();

// -- ranks ------------------------------------------------------------------------------------------------------------

// Runs body on every rank, each in its own thread, with communicators that live until all have returned. Returns what
// each rank threw; "" for nothing.
std::vector<std::string> errors_on_ranks(int world, const CommOptions& options,
                                         const std::function<void(Communicator&)>& body, Devices& devices = *cpus());
// The same where nobody should throw: throws the first error.
void on_ranks(int world, const CommOptions& options, const std::function<void(Communicator&)>& body,
              Devices& devices = *cpus());

// One rank at work; members die in reverse order.
struct Rank {
  Rank(const Config& c, Communicator& host);
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void micro_batch(int64_t a);  // the a-th of this rank in step `next_step`
  StepResult step();            // all of the next step
  std::vector<float> evaluate();
  StagePlan predict() const { return engine->predict(model->uses()); }

  const Config& config;
  Context context;
  const std::unique_ptr<Communicator> group;  // of the devices; may be null
  Communicator& comm;
  std::unique_ptr<TestModel> model;
  std::unique_ptr<ZeroEngine> engine;
  int64_t next_step = 0;
};

// -- results ----------------------------------------------------------------------------------------------------------

using Values = std::map<std::string, std::vector<float>>;  // by the parameter's name, whole

struct StepLog {
  StepResult result;              // equal on all ranks
  std::vector<uint32_t> digests;  // by rank, as everything below: of the parameters after the step, if taken
  std::vector<BytesByCategory> before, peak;  // live when the step began; the largest during it
  std::vector<CommCounters> traffic;          // of this step
  std::vector<int64_t> host_waits;            // how often the host waited for the device during it
};

struct Run {
  StagePlan plan;
  std::vector<BytesByCategory> peak_of_start, after_end;  // by rank; after_end: engine destroyed, model and context not
  std::vector<uint32_t> start_digests;
  std::vector<StepLog> steps;
  int64_t steps_taken = 0, steps_skipped = 0;
  Values start, parameters, first_gradients;
  std::array<Values, 2> moments;
};

// Trains config.steps steps; throws what a rank throws. `between` runs on each rank after every step.
Run run(const Config& config, const std::function<void(Rank&)>& between = nullptr);

// Assembles whole tensors from what each rank answers for; ranks call it together, each with its own engine.
enum class What { gradient, first_moment, second_moment };
void collect_shards(const ZeroEngine& engine, What what, Values& into);

// -- comparing --------------------------------------------------------------------------------------------------------

// "" when losses, norms, parameters, moments and digests have the same bits, else where they first differ.
std::string difference(const Run& a, const Run& b);
std::string difference(const Values& a, const Values& b);
// The largest |a_i - b_i| in units of the tensor's largest |b_i|; a tensor that is 0 but for rounding (a key's bias)
// goes by the largest of all tensors.
double relative_error(const Values& a, const Values& b);
// Parameters that hold something else than a number: a pad, or memory that was not there, got into them.
bool all_finite(const Values& values);

}  // namespace trencadis::test
