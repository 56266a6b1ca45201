#include "training.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "dist/local/local_communicator.h"
#include "dist/thread/thread_communicator.h"

namespace trencadis::test {

std::string Config::describe() const {
  return fmt::format("stage {} W {} ga {} prefetch {} reshard {} clip {} threads {} misalign {} delay {} us seed {}",
                     stage, world, grad_accum, prefetch, reshard, clip, threads, misalign, comm.delay_us,
                     comm.delay_seed);
}

CommOptions delayed(int microseconds, uint64_t seed) {
  CommOptions options;
  options.timeout_seconds = 60;
  options.delay_us = microseconds / 3;  // before and after the work, and on average half as much again
  options.delay_seed = seed;
  return options;
}

std::vector<uint64_t> delay_seeds() {
  if (const char* seed = std::getenv("TRENCADIS_DELAY_SEED")) return {std::strtoull(seed, nullptr, 10)};
  if (kReduced) return {1};
  return {1, 2, 3};
}

// -- ranks ------------------------------------------------------------------------------------------------------------

namespace {
class Cpus final : public Devices {
 public:
  std::unique_ptr<Backend> make_backend(const Config& config, int) override {
    return make_cpu_backend({.threads = config.threads, .misalign = config.misalign, .poison = true});
  }
  std::unique_ptr<Communicator> make_group(Context&, Communicator&, const CommOptions&) override { return nullptr; }
  Around around_threads(int) override {
    return [](const std::function<void()>& body) { body(); };
  }
  int64_t host_waits(Context&) override { return 0; }
};
}  // namespace

std::shared_ptr<Devices> cpus() {
  static const auto all = std::make_shared<Cpus>();
  return all;
}

std::vector<std::string> errors_on_ranks(int world, const CommOptions& options,
                                         const std::function<void(Communicator&)>& body, Devices& devices) {
  std::vector<std::unique_ptr<Communicator>> comms;
  if (world == 1)
    comms.push_back(make_local_communicator(options));
  else
    comms = make_thread_communicators(world, options);
  std::vector<std::string> errors(comms.size());
  std::vector<std::thread> threads;
  const Devices::Around around = devices.around_threads(world);
  for (size_t r = 0; r < comms.size(); ++r)
    threads.emplace_back([&, r] {
      around([&, r] {
        try {
          body(*comms[r]);
        } catch (const std::exception& error) {
          errors[r] = error.what();
          comms[r].reset();  // whoever waits for this rank must not wait for the timeout
        }
      });
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void on_ranks(int world, const CommOptions& options, const std::function<void(Communicator&)>& body, Devices& devices) {
  const std::vector<std::string> errors = errors_on_ranks(world, options, body, devices);
  for (size_t r = 0; r < errors.size(); ++r)
    if (!errors[r].empty()) throw Error(fmt::format("on rank {}: {}", r, errors[r]));
}

Rank::Rank(const Config& c, Communicator& host)
    : config(c),
      context(c.devices->make_backend(c, host.rank())),
      group(c.devices->make_group(context, host, c.comm)),
      comm(group ? *group : host),
      model(c.model()) {
  ZeroOptions options;
  options.stage = c.stage;
  options.grad_accum = c.grad_accum;
  options.grad_clip = c.clip;
  options.prefetch = c.prefetch;
  options.reshard_after_forward = c.reshard;
  options.seed = 17;
  if (c.adjust) c.adjust(comm.rank(), options);
  AdamWOptions adamw;
  adamw.weight_decay = c.weight_decay;
  engine =
      std::make_unique<ZeroEngine>(context, ZeroGroups{&comm, nullptr}, model->units(), make_adamw(adamw), options);
  model->observe(engine.get());
}

void Rank::micro_batch(int64_t a) {
  MicroBatch batch;
  batch.step = next_step;
  batch.number = (next_step * config.grad_accum + a) * comm.size() + comm.rank();
  batch.rank = comm.rank();
  engine->micro_batch(model->tokens(), [&](const Tensor& totals) { return model->loss(context, batch, totals); });
}

StepResult Rank::step() {
  for (int64_t a = 0; a < config.grad_accum; ++a) micro_batch(a);
  ++next_step;
  return engine->step(config.lr);
}

std::vector<float> Rank::evaluate() {
  std::vector<float> outputs;
  engine->evaluate([&] { outputs = model->evaluate(context); });
  return outputs;
}

// -- running ----------------------------------------------------------------------------------------------------------

namespace {

std::mutex collecting;  // ranks write into one Run

CommCounters minus(CommCounters a, const CommCounters& b) {
  for (int t = 0; t < kTrafficClasses; ++t)
    for (int k = 0; k < kCollectiveKinds; ++k) {
      a.count[t][k].calls -= b.count[t][k].calls;
      a.count[t][k].elements_sent -= b.count[t][k].elements_sent;
      a.count[t][k].bytes_sent -= b.count[t][k].bytes_sent;
    }
  return a;
}

uint64_t bits(double value) { return std::bit_cast<uint64_t>(value); }

bool same_result(const StepResult& a, const StepResult& b) {
  return bits(a.loss) == bits(b.loss) && bits(a.grad_norm) == bits(b.grad_norm) &&
         bits(a.grad_max) == bits(b.grad_max) && a.tokens == b.tokens && a.skipped == b.skipped && a.flag == b.flag;
}

Values whole_parameters(ZeroEngine& engine, Context& context) {
  Values values;
  engine.visit_parameters([&](const Parameter& parameter, ConstView view) {
    std::vector<float>& out = values[parameter.name];
    out.resize(static_cast<size_t>(view.size));
    context.copy_to_host(out.data(), view);
  });
  return values;
}

template <typename T>
T& at(std::vector<T>& by_rank, const Communicator& comm) {
  return by_rank[static_cast<size_t>(comm.rank())];
}

}  // namespace

void collect_shards(const ZeroEngine& engine, What what, Values& into) {
  engine.strategy().visit_shards([&](const ShardView& shard) {
    if (!shard.segment.layout->trainable()) return;
    const Piece& piece =
        what == What::gradient ? shard.segment.gradient : shard.segment.states[what == What::first_moment ? 0 : 1];
    shard.segment.layout->for_each_slice(shard.range, [&](const FlatSlice& slice) {
      std::vector<float> part(static_cast<size_t>(slice.count));
      piece.memory.context().copy_to_host(part.data(), piece.at(slice.offset, slice.count));
      const std::lock_guard lock(collecting);
      std::vector<float>& values = into[slice.entry->parameter->name];
      values.resize(static_cast<size_t>(slice.entry->count));
      std::copy(part.begin(), part.end(), values.begin() + slice.first);
    });
  });
}

Run run(const Config& config, const std::function<void(Rank&)>& between) {
  Run run;
  const auto world = static_cast<size_t>(config.world);
  run.peak_of_start.resize(world);
  run.after_end.resize(world);
  run.start_digests.resize(world);
  run.steps.resize(static_cast<size_t>(config.steps));
  for (StepLog& step : run.steps) {
    if (config.look_between_steps || &step == &run.steps.back()) step.digests.resize(world);
    step.before.resize(world);
    step.peak.resize(world);
    step.traffic.resize(world);
    step.host_waits.resize(world);
  }
  std::vector<std::vector<StepResult>> results(world);

  const auto train = [&](Communicator& comm) {
    Rank rank(config, comm);
    at(run.peak_of_start, comm) = rank.context.memory().peak();
    at(run.start_digests, comm) = rank.engine->digest();
    Values start = whole_parameters(*rank.engine, rank.context);
    for (StepLog& step : run.steps) {
      const CommCounters before = rank.engine->counters();
      at(step.before, comm) = rank.context.memory().live();
      rank.context.memory().reset_peak();
      const int64_t waits_before = config.devices->host_waits(rank.context);
      at(results, comm).push_back(rank.step());
      at(step.host_waits, comm) = config.devices->host_waits(rank.context) - waits_before;
      at(step.peak, comm) = rank.context.memory().peak();
      if (!step.digests.empty()) at(step.digests, comm) = rank.engine->digest();  // also waits for the last gathers
      at(step.traffic, comm) = minus(rank.engine->counters(), before);
      if (&step == run.steps.data()) collect_shards(*rank.engine, What::gradient, run.first_gradients);
      if (between) between(rank);
    }
    Values end = whole_parameters(*rank.engine, rank.context);
    collect_shards(*rank.engine, What::first_moment, run.moments[0]);
    collect_shards(*rank.engine, What::second_moment, run.moments[1]);
    if (comm.rank() == 0) {
      run.start = std::move(start);
      run.parameters = std::move(end);
      run.plan = rank.predict();
      run.steps_taken = rank.engine->steps_taken();
      run.steps_skipped = rank.engine->steps_skipped();
    }
    rank.model->observe(nullptr);
    rank.engine.reset();
    at(run.after_end, comm) = rank.context.memory().live();
  };
  on_ranks(config.world, config.comm, train, *config.devices);

  for (size_t s = 0; s < run.steps.size(); ++s) {
    run.steps[s].result = results[0][s];
    for (size_t r = 1; r < world; ++r)
      if (!same_result(results[r][s], results[0][s]))
        throw Error(fmt::format("ranks 0 and {} report other results of step {}", r, s));
  }
  return run;
}

// -- comparing --------------------------------------------------------------------------------------------------------

std::string difference(const Values& a, const Values& b) {
  if (a.empty()) return "there is nothing to compare";
  if (a.size() != b.size()) return fmt::format("{} tensors and {}", a.size(), b.size());
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != values.size()) return name + " is missing or has another size";
    for (size_t i = 0; i < values.size(); ++i)
      if (std::bit_cast<uint32_t>(values[i]) != std::bit_cast<uint32_t>(other->second[i]))
        return fmt::format("{}[{}] is {} and {}", name, i, values[i], other->second[i]);
  }
  return "";
}

std::string difference(const Run& a, const Run& b) {
  if (a.steps.size() != b.steps.size() || a.steps.empty())
    return fmt::format("{} steps and {}", a.steps.size(), b.steps.size());
  for (size_t s = 0; s < a.steps.size(); ++s) {
    const StepResult &x = a.steps[s].result, &y = b.steps[s].result;
    if (!same_result(x, y))
      return fmt::format("step {}: loss {} and {}, norm {} and {}, tokens {} and {}", s, x.loss, y.loss, x.grad_norm,
                         y.grad_norm, x.tokens, y.tokens);
    const std::vector<uint32_t>& digests = a.steps[s].digests;
    if (digests.empty() || b.steps[s].digests.empty()) continue;
    for (const std::vector<uint32_t>* list : {&digests, &b.steps[s].digests})
      for (size_t r = 0; r < list->size(); ++r)
        if ((*list)[r] != digests[0])
          return fmt::format("step {}: digest {:08X} and on rank {} {:08X}", s, digests[0], r, (*list)[r]);
  }
  std::string text = difference(a.parameters, b.parameters);
  for (size_t i = 0; i < 2 && text.empty(); ++i) text = difference(a.moments[i], b.moments[i]);
  return text;
}

double relative_error(const Values& a, const Values& b) {
  const auto largest = [](const std::vector<float>& values) {
    double most = 0;
    for (float v : values) most = std::max(most, std::abs(static_cast<double>(v)));
    return most;
  };
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double of_all = 0, worst = 0;
  for (const auto& [name, values] : b) of_all = std::max(of_all, largest(values));
  for (const auto& [name, values] : b) {
    const std::vector<float>& other = a.at(name);
    const double scale = largest(values) > 1e-6 * of_all ? largest(values) : of_all;
    for (size_t i = 0; i < values.size(); ++i) {
      const double error = std::abs(static_cast<double>(other[i]) - static_cast<double>(values[i]));
      if (!std::isfinite(error)) return INFINITY;
      worst = std::max(worst, error / scale);
    }
  }
  return worst;
}

bool all_finite(const Values& values) {
  for (const auto& [name, list] : values)
    if (!std::all_of(list.begin(), list.end(), [](float v) { return std::isfinite(v); })) return false;
  return !values.empty();
}

}  // namespace trencadis::test
