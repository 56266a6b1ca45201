#include "models/trainer/trainer.h"

#include <chrono>
#include <cmath>

#include "dist/on_all_ranks.h"
#include "models/families.h"
#include "models/hugging_face/hugging_face.h"
#include "models/options/train_flags.h"
#include "models/report/profile_table.h"
#include "models/report/summary.h"
#include "models/trainer/initial_weights.h"
#include "models/trainer/model_options.h"
#include "models/trainer/sampling.h"

namespace trencadis {

namespace {

ZeroOptions zero_options(const TrainOptions& o) {
  ZeroOptions zero;
  zero.stage = static_cast<int>(o.zero_stage);
  zero.grad_accum = static_cast<int>(o.grad_accum);
  zero.grad_clip = static_cast<float>(o.grad_clip);
  zero.prefetch = static_cast<int>(o.prefetch);
  zero.reshard_after_forward = o.reshard_after_forward;
  zero.seed = static_cast<uint64_t>(o.seed);
  return zero;
}

Schedule schedule_of(const TrainOptions& o) {
  Schedule schedule;
  schedule.kind = o.lr_schedule == "constant" ? ScheduleKind::constant
                  : o.lr_schedule == "linear" ? ScheduleKind::linear
                                              : ScheduleKind::cosine;
  schedule.lr = o.lr;
  schedule.min_lr = o.min_lr;
  schedule.warmup_steps = o.warmup_steps;
  schedule.max_steps = o.max_steps;
  return schedule;
}

SaveOptions save_options(const TrainOptions& o) {
  SaveOptions save;
  save.out_dir = o.out_dir;
  save.on = o.save_interval != "off";
  save.interval_steps = o.save_steps();
  save.interval_seconds = o.save_seconds();
  save.keep_last = o.keep_last;
  save.config = settings_of(o);
  save.config.emplace_back(kFamilySetting, o.family);
  return save;
}

RunReportOptions report_options(const TrainOptions& o) {
  return {o.out_dir, o.metrics_path(), o.report_path(), o.trace, o.max_steps, settings_of(o)};
}

}  // namespace

Trainer::Trainer(const TrainOptions& options, Context& context, Communicator& world, Communicator& group,
                 Progress progress, const FoundCheckpoint* resumed, Profile* profile)
    : options_(options),
      world_(world),
      chief_(world.rank() == 0),
      progress_(std::move(progress)),
      context_(context),
      resident_at_start_(resident_bytes()),
      schedule_(schedule_of(options)),
      profile_(profile) {
  on_all_ranks(world, [&] { open_data(); });
  model_ = make_model(model_config(options, dataset_.vocab_size));
  AdamWOptions adamw;
  adamw.beta1 = static_cast<float>(options.beta1);
  adamw.beta2 = static_cast<float>(options.beta2);
  adamw.weight_decay = static_cast<float>(options.weight_decay);
  engine_ =
      std::make_unique<ZeroEngine>(context_, ZeroGroups{&group}, *model_, make_adamw(adamw), zero_options(options));
  if (resumed) {
    say(load_checkpoint(*resumed, *engine_, context_, world_, /*with_states=*/true));
    first_step_ = step_ = resumed->index.step;
    samples_ = resumed->index.samples;
  } else if (!options_.init_from.empty()) {
    load_initial_weights(options_.init_from, *model_, *engine_, context_, world_);
  }
  on_all_ranks(world, [&] {
    if (chief_ && !options_.export_dir.empty()) check_export_folder(options_.export_dir);
  });
  saver_ = std::make_unique<CheckpointSaver>(save_options(options_), world_, *engine_, resumed);
  on_all_ranks(world, [&] {
    if (!chief_ || options_.metrics_path().empty()) return;
    make_folder_of(options_.metrics_path());
    metrics_ = std::make_unique<MetricsFile>(options_.metrics_path(), first_step_);
  });
  on_all_ranks(world, [&] {
    report_ = std::make_unique<RunReport>(report_options(options_), context_, world_, options_.max_steps - first_step_);
  });
}

Trainer::~Trainer() = default;

void Trainer::open_data() {
  dataset_ = open_dataset(options_.train_data, options_.val_data, options_.vocab_size, options_.plain_token_bytes());
  const int64_t T = options_.block_size;
  train_ = std::make_unique<Batches>(
      Batches::training(dataset_.train, T, dataset_.vocab_size, static_cast<uint64_t>(options_.seed)));
  // The tenth that was split off for the user may be too short to validate; data named by the user may not.
  if (options_.eval_steps > 0 && (!options_.val_data.empty() || dataset_.val.size() > T))
    val_ = std::make_unique<Batches>(Batches::validation(dataset_.val, T, dataset_.vocab_size));
  // A prompt that cannot be used must not wait for the end of training to say so.
  if (options_.sample_tokens > 0) prompt_ = encode_prompt(options_.prompt, dataset_.text, dataset_.vocab_size);
}

void Trainer::say(const std::string& line) {
  if (chief_) progress_.note(line);
}

std::string Trainer::model_line() const {
  const ModelConfig& c = model_->config();
  return fmt::format("{} layers, {} heads, {} channels, sequence {}, vocabulary {}: {:.2f} million parameters",
                     c.n_layer, c.n_head, c.n_embd, c.block_size, c.vocab_size,
                     static_cast<double>(model_->parameter_count()) / 1e6);
}

// What run.json says before anything was measured.
RunRecord Trainer::record_of_start() const {
  RunRecord run;
  run.data = dataset_.message;
  run.model = model_line();
  run.parameters = model_->parameter_count();
  set_rows(run, summarise_run(*engine_, *model_, options_.batch_size, staging(), {}, 0), /*measured=*/false);
  return run;
}

void Trainer::announce() {
  if (first_step_ == 0 && !options_.init_from.empty()) say("weights: " + options_.init_from);
  say(dataset_.message);
  say("model: " + model_line());
  say(fmt::format("run: {} rank{}, ZeRO stage {}, {} tokens a step ({} sequences x {} x {} micro-batch{})",
                  world_.size(), world_.size() > 1 ? "s" : "", options_.zero_stage,
                  options_.tokens_per_step(world_.size()), options_.batch_size * world_.size(), options_.block_size,
                  options_.grad_accum, options_.grad_accum > 1 ? "es" : ""));
  if (!val_ && options_.eval_steps > 0)
    say(fmt::format("no validation: its {} tokens are fewer than one sequence and its target", dataset_.val.size()));
}

// Micro-batch m = a W + r of a step is this rank's a-th; samples are counted over the whole training.
StepRecord Trainer::train_step() {
  const auto start = std::chrono::steady_clock::now();
  context_.memory().reset_peak();
  const int64_t B = options_.batch_size, T = options_.block_size;
  std::vector<int32_t> ids(static_cast<size_t>(B * T)), targets(ids.size());
  for (int64_t a = 0; a < options_.grad_accum; ++a) {
    ForwardState state;
    state.training = true;
    state.seed = static_cast<uint64_t>(options_.seed);
    state.step = step_;
    state.first_sample = samples_ + (a * world_.size() + world_.rank()) * B;
    train_->fill(state.first_sample, B, ids.data(), targets.data());
    const Tensor x = Tensor::from(context_, ids, {B, T}), y = Tensor::from(context_, targets, {B, T});
    engine_->micro_batch(B * T, [&](const Tensor& totals) { return model_->loss(x, y, state, totals); });
  }
  const float lr = schedule_.at(step_);
  // The largest word counts: a signal above the wish to save, which a signal grants anyway.
  constexpr int64_t kSaveWish = 1, kSignals = 2;
  const int signal = StopSignals::received();
  const StepResult result = engine_->step(lr, signal != 0 ? kSignals + signal : saver_->overdue() ? kSaveWish : 0);
  stop_signal_ = std::max<int64_t>(0, result.flag - kSignals);
  save_wished_ = result.flag != 0;
  samples_ += B * options_.grad_accum * world_.size();
  StepRecord record;
  record.step = ++step_;
  record.loss = result.loss;
  record.grad_norm = result.grad_norm;
  record.lr = lr;
  record.skipped = result.skipped;
  record.tokens = options_.tokens_per_step(world_.size());
  record.tokens_seen = samples_ * T;
  record.step_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  record.comm = result.traffic;
  return record;
}

void Trainer::gather_memory(StepRecord& record) {
  RankMemory own;
  own[0] = context_.memory().peak_total();
  const BytesByCategory peak = context_.memory().peak();
  std::copy(peak.begin(), peak.end(), own.begin() + 1);
  const std::vector<int64_t> all = exchange_words(world_, {own.begin(), own.end()}, "memory of the ranks");
  record.memory.resize(static_cast<size_t>(world_.size()));
  for (size_t r = 0; r < record.memory.size(); ++r)
    std::copy_n(all.begin() + static_cast<int64_t>(r * own.size()), own.size(), record.memory[r].begin());
}

// Mean loss over eval_steps micro-batches a rank of validation windows, the same ones each time.
double Trainer::evaluate() {
  const int64_t B = options_.batch_size, T = options_.block_size;
  const Tensor totals = Tensor::zeros(context_, {kLossWords}, DType::i64, MemoryCategory::workspace, "loss totals");
  std::vector<int32_t> ids(static_cast<size_t>(B * T)), targets(ids.size());
  const TraceScope scope(context_.tracer(), context_.compute_stream().name(), [] { return std::string("validation"); });
  engine_->evaluate([&] {
    for (int64_t i = 0; i < options_.eval_steps; ++i) {
      if (i * world_.size() * B >= val_->windows()) break;
      val_->fill((i * world_.size() + world_.rank()) * B, B, ids.data(), targets.data());
      const Tensor x = Tensor::from(context_, ids, {B, T}), y = Tensor::from(context_, targets, {B, T});
      model_->loss(x, y, {}, totals);
    }
  });
  std::vector<int64_t> own(kLossWords), words(kLossWords);
  context_.copy_to_host(own.data(), totals.view());
  const std::vector<int64_t> all = exchange_words(world_, own, "validation loss");
  for (size_t i = 0; i < all.size(); ++i) words[i % kLossWords] += all[i];
  if (words[kLossNonFinite] > 0 || words[kLossTokens] == 0) return std::nan("");
  return static_cast<double>(words[kLossFixedPoint]) * kLossUnit / static_cast<double>(words[kLossTokens]);
}

// All ranks compute the same logits and draw the same tokens: under stage 3 each forward gathers,
// and all must take part.
std::string Trainer::generate() {
  std::vector<int32_t> tokens = prompt_;
  SamplingOptions sampling;
  sampling.temperature = options_.temperature;
  sampling.top_k = options_.top_k;
  sampling.seed = static_cast<uint64_t>(options_.seed);
  const TraceScope scope(context_.tracer(), context_.compute_stream().name(), [] { return std::string("sample"); });
  engine_->evaluate([&] {
    for (int64_t i = 0; i < options_.sample_tokens; ++i) {
      const auto length = std::min(static_cast<int64_t>(tokens.size()), options_.block_size);
      const std::vector<int32_t> window(tokens.end() - length, tokens.end());
      const Tensor logits = model_->next_token_logits(Tensor::from(context_, window, {1, length}));
      tokens.push_back(sample_token(logits.to_vector(), sampling, generated_++));
    }
  });
  return decode(tokens, dataset_.text);
}

void Trainer::run() {
  announce();
  report_->start(record_of_start());
  try {
    train();
  } catch (const DivergedError&) {  // on all ranks at the same step
    RunReport::End end;
    end.status = "diverged";
    end.steps_done = step_;
    end.summary = summarise_run(*engine_, *model_, options_.batch_size, staging(), last_, 0);
    end.memory = last_.memory;
    for (const std::string& line : report_->finish(end)) say(line);
    throw;
  } catch (const std::exception& error) {
    report_->abandon(fmt::format("ended by an error: {}", error.what()));
    throw;
  }
}

void Trainer::train() {
  int skips_in_a_row = 0;
  if (step_ >= options_.max_steps)
    say(fmt::format("nothing to train: the checkpoint has done {} of {} steps; raise --max-steps to go on", step_,
                    options_.max_steps));
  while (step_ < options_.max_steps && stop_signal_ == 0) {
    report_->recorder().begin_step();
    StepRecord record = train_step();
    profiled_seconds_ += record.step_seconds;
    // The first step finds everything cold: it is not what the others are like.
    if (profile_ && step_ == first_step_ + 1 && step_ < options_.max_steps) {
      profile_->clear();
      profiled_seconds_ = 0;
    }
    report_->recorder().end_step(step_);
    gather_memory(record);
    const bool last = step_ == options_.max_steps;
    const auto due = [&](int64_t interval) { return last || (interval > 0 && step_ % interval == 0); };
    if (val_ && stop_signal_ == 0 && due(options_.eval_interval)) record.val_loss = evaluate();
    if (metrics_) metrics_->write(record);
    if (chief_) progress_.step(record);
    const bool sample = options_.sample_tokens > 0 && options_.sample_interval > 0 && !last && stop_signal_ == 0;
    if (sample && step_ % options_.sample_interval == 0) say("--- sample\n" + generate() + "\n---");
    last_ = std::move(record);
    skips_in_a_row = last_.skipped ? skips_in_a_row + 1 : 0;
    if (skips_in_a_row >= kMostSkips)
      throw DivergedError(fmt::format(
          "loss or gradient norm was not finite for {} steps in a row, up to step {} (loss {}, norm {}); lower "
          "--lr, raise --warmup-steps, or set --grad-clip",
          skips_in_a_row, step_, last_.loss, last_.grad_norm));
    if (save_wished_ || last || saver_->due_at(step_)) save();
  }
  // What the last update still sends (stages 1 and 2) arrives before the run is called done; a run of one step has no
  // later step that would count it.
  const CommCounters rest = engine_->drain();
  if (step_ == first_step_ + 1) last_.comm += rest;
  summarise();
}

void Trainer::save() {
  const TraceScope scope(context_.tracer(), context_.compute_stream().name(), [] { return std::string("save"); });
  for (const std::string& line : saver_->save(step_, samples_)) say(line);
}

void Trainer::summarise() {
  RunReport::End end;
  if (stop_signal_ != 0) {
    end.status = fmt::format("stopped by signal {}", stop_signal_);
    say(fmt::format("{} after step {}{}", end.status, step_,
                    saver_->on() ? "; --resume auto goes on from there" : "; nothing was saved (--save-interval off)"));
  }
  if (engine_->steps_skipped() > 0)
    say(fmt::format("{} steps were skipped: gradient or loss not finite", engine_->steps_skipped()));
  const std::vector<int64_t> residents =
      exchange_words(world_, {std::max<int64_t>(0, peak_resident_bytes() - resident_at_start_)}, "resident memory");
  const int64_t resident = *std::max_element(residents.begin(), residents.end());
  if (step_ > first_step_) {
    end.summary = summarise_run(*engine_, *model_, options_.batch_size, staging(), last_, resident);
    say(summary_table(end.summary));
  }
  if (profile_ && step_ > first_step_)
    say(profile_table(*profile_, std::max<int64_t>(1, step_ - first_step_ - 1), profiled_seconds_));
  if (options_.sample_tokens > 0 && stop_signal_ == 0) {
    end.sample = generate();
    say("--- sample\n" + end.sample + "\n---");
  }
  if (options_.digest) end.digest = fmt::format("{:08X}", engine_->digest());
  if (!options_.export_dir.empty() && stop_signal_ == 0) {
    export_hugging_face(*engine_, *model_, world_, options_.export_dir);
    say("exported: " + options_.export_dir);
  }
  end.steps_done = step_;
  end.memory = last_.memory;
  if (metrics_) say("metrics: " + options_.metrics_path());
  for (const std::string& line : report_->finish(end)) say(line);
  if (options_.digest && chief_) fmt::print("digest {}\n", end.digest);
  std::fflush(stdout);
}

}  // namespace trencadis
