#include "models/trainer/checkpoints.h"

#include <algorithm>
#include <filesystem>
#include <random>

#include "models/trainer/launch.h"
#include "zero/checkpoint/shards.h"

namespace trencadis {

namespace {

// Checks that a candidate is complete and undamaged: rank r reads files r, r + W, ...
void verify_together(const CheckpointCandidate& candidate, Communicator& world) {
  on_all_ranks(world, [&] {
    CheckpointReader reader(candidate.folder, candidate.index);
    for (int file = world.rank(); file < static_cast<int>(candidate.index.files.size()); file += world.size())
      reader.verify(file);
  });
}

// Rank 0's candidate on all ranks; an empty folder where rank 0 has none.
CheckpointCandidate share_candidate(const CheckpointCandidate* own, Communicator& world) {
  const std::string text = own ? own->folder + '\n' + own->index_text : std::string();
  const std::string shared = exchange_texts(world, text).front();
  CheckpointCandidate candidate;
  const size_t line = shared.find('\n');
  if (line == std::string::npos) return candidate;
  candidate.folder = shared.substr(0, line);
  candidate.index_text = shared.substr(line + 1);
  candidate.index = parse_checkpoint_index(candidate.index_text, candidate.folder + "/index.json");
  return candidate;
}

std::string random_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

int64_t milliseconds_since_1970() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double megabytes(const CheckpointIndex& index) {
  int64_t bytes = 0;
  for (const CheckpointFile& file : index.files) bytes += file.bytes;
  return static_cast<double>(bytes) / 1e6;
}

int64_t number_of(const std::string& text) { return text.empty() ? 0 : std::strtoll(text.c_str(), nullptr, 10); }

}  // namespace

std::optional<FoundCheckpoint> find_checkpoint(const std::string& resume, const std::string& out_dir,
                                               Communicator& world, std::vector<std::string>& notes) {
  const Clock::time_point start = Clock::now();
  const bool automatic = resume == "auto", chief = world.rank() == 0;
  const std::string place = automatic ? out_dir : resume;
  CheckpointListing listing;  // rank 0's is what counts
  bool named = false;         // the folder of one checkpoint: no other will do
  on_all_ranks(world, [&] {
    if (!chief) return;
    named = !automatic && std::filesystem::exists(resume + "/index.json");
    if (!automatic && !std::filesystem::is_directory(resume))
      throw DataError(
          fmt::format("--resume {}: there is no such folder; name a checkpoint, the --out-dir of a run, or "
                      "auto",
                      resume));
    if (named)
      listing.candidates.push_back(read_candidate(resume));
    else
      listing = list_checkpoints(place);
  });
  named = exchange_texts(world, named ? "named" : "").front() == "named";

  std::vector<std::string> ignored = listing.ignored;
  std::optional<FoundCheckpoint> found;
  for (size_t next = 0;; ++next) {
    const bool more = chief && next < listing.candidates.size();
    CheckpointCandidate candidate = share_candidate(more ? &listing.candidates[next] : nullptr, world);
    if (candidate.folder.empty()) break;
    try {
      verify_together(candidate, world);
      found = FoundCheckpoint{candidate.folder, std::move(candidate.index), seconds_since(start)};
      break;
    } catch (const DataError& e) {  // on all ranks alike
      if (named) throw;
      ignored.emplace_back(e.what());
    }
  }
  for (const std::string& line : ignored) notes.push_back("ignored: " + line);
  for (const CheckpointCandidate& other : listing.candidates)
    if (found && other.index.run != found->index.run) {
      notes.push_back(
          fmt::format("{} also holds checkpoints of another training, the newest of them {}; name one to go on "
                      "from it",
                      place, other.folder));
      break;
    }
  if (!found && !automatic) {
    const std::string why = exchange_texts(world, fmt::format("{}", fmt::join(ignored, "; "))).front();
    throw Agreed<DataError>(
        fmt::format("--resume {}: there is no complete checkpoint{}", resume, why.empty() ? "" : ": " + why));
  }
  notes.push_back(found ? fmt::format("resumed from {}: step {}, {} ranks, ZeRO stage {}", found->folder,
                                      found->index.step, found->index.world, found->index.zero_stage)
                        : fmt::format("no checkpoint in {} yet: starting at step 0", out_dir));
  return found;
}

std::vector<std::string> continue_options(TrainOptions& options, const CheckpointIndex& index, int world) {
  std::vector<std::string> notes;
  const int64_t batch = number_of(index.setting("batch-size")), accum = number_of(index.setting("grad-accum"));
  const int64_t saved = batch * accum * index.world;  // sequences in a step
  if (options.total_batch_tokens == 0 && saved > 0) {
    const int64_t micro = options.batch_size * world;
    if (saved % micro != 0)
      throw UsageError(fmt::format(
          "--batch-size {} on {} rank{} makes micro-batches of {} sequences, and the checkpoint's steps of {} are no "
          "multiple of that; give a --batch-size that divides {}, or change the batch with --total-batch-tokens",
          options.batch_size, world, world == 1 ? "" : "s", micro, saved,
          saved % world == 0 ? fmt::format("{}", saved / world)
                             : fmt::format("it ({} has no part for each rank)", saved)));
    if (saved / micro != options.grad_accum)
      notes.push_back(fmt::format("grad-accum is {}, so that a step keeps its {} sequences ({} ranks saved, {} go on)",
                                  saved / micro, saved, index.world, world));
    options.grad_accum = saved / micro;
  }
  if (const int64_t now = options.batch_size * options.grad_accum * world; saved > 0 && now != saved)
    notes.push_back(fmt::format("a step has {} sequences from here on; it had {}", now, saved));

  std::string changed;
  for (const char* key : {"seed", "train-data", "val-data", "max-steps", "lr", "min-lr", "warmup-steps", "lr-schedule",
                          "weight-decay", "beta1", "beta2", "grad-clip", "dropout"}) {
    const std::string before = index.setting(key), now = setting_of(options, key);
    if (before != now)
      changed += fmt::format("{}{} {} -> {}", changed.empty() ? "" : ", ", key, before.empty() ? "''" : before,
                             now.empty() ? "''" : now);
  }
  if (!changed.empty()) notes.push_back("settings that are not those of the checkpoint: " + changed);
  return notes;
}

std::optional<FoundCheckpoint> resume_run(TrainOptions& options, Communicator& world, std::vector<std::string>& notes) {
  if (options.resume.empty()) return std::nullopt;
  std::optional<FoundCheckpoint> found = find_checkpoint(options.resume, options.out_dir, world, notes);
  if (found)
    on_all_ranks(world, [&] {
      for (std::string& note : continue_options(options, found->index, world.size())) notes.push_back(std::move(note));
    });
  return found;
}

std::string load_checkpoint(const FoundCheckpoint& found, ZeroEngine& engine, Context& context, Communicator& world,
                            bool with_states) {
  const Clock::time_point start = Clock::now();
  std::vector<std::string> differences = model_differences(found.index, engine.layouts());
  std::vector<std::string> states;
  for (int i = 0; i < engine.optimizer().state_count(); ++i) states.push_back(engine.optimizer().state_name(i));
  if (with_states && !found.index.states.empty() && found.index.states != states)
    differences.push_back(fmt::format("the optimizer's state is {} in the checkpoint and {} here",
                                      fmt::join(found.index.states, ", "), fmt::join(states, ", ")));
  if (!differences.empty())
    throw Agreed<DataError>(fmt::format("{}: is of another model; give the flags of the run that saved it:\n  {}",
                                        found.folder, fmt::join(differences, "\n  ")));
  on_all_ranks(world, [&] {
    CheckpointReader(found.folder, found.index).load(engine, context, with_states && !found.index.states.empty());
  });
  const double seconds = seconds_since(start);
  return fmt::format("loaded {}: {:.1f} MB in {:.2f} s, of which {:.2f} s to check them", found.folder,
                     megabytes(found.index), found.seconds + seconds, found.seconds);
}

CheckpointSaver::CheckpointSaver(const TrainOptions& options, std::vector<std::pair<std::string, std::string>> config,
                                 Communicator& world, Context& context, ZeroEngine& engine,
                                 const FoundCheckpoint* resumed)
    : out_dir_(options.out_dir),
      on_(options.save_interval != "off"),
      interval_steps_(options.save_steps()),
      interval_seconds_(options.save_seconds()),
      keep_last_(options.keep_last),
      zero_stage_(static_cast<int>(options.zero_stage)),
      config_(std::move(config)),
      world_(world),
      context_(context),
      engine_(engine) {
  if (!on_) return;
  on_all_ranks(world, [&] {
    std::error_code ignored;  // the probe below says more
    if (world.rank() == 0) std::filesystem::create_directories(out_dir_, ignored);
  });
  on_all_ranks(world, [&] { check_folder_writable(out_dir_, "--out-dir"); });
  on_all_ranks(world, [&] {
    if (world.rank() == 0) lock_ = std::make_unique<FolderLock>(out_dir_);
  });
  if (resumed && std::filesystem::path(resumed->folder).parent_path() == std::filesystem::path(out_dir_))
    saved_step_ = resumed->index.step;
  run_ = resumed ? resumed->index.run : exchange_texts(world, random_id()).front();
}

bool CheckpointSaver::overdue() const {
  return on_ && interval_seconds_ > 0 && world_.rank() == 0 && seconds_since(last_save_) >= interval_seconds_;
}

bool CheckpointSaver::due_at(int64_t step) const { return on_ && interval_steps_ > 0 && step % interval_steps_ == 0; }

std::vector<std::string> CheckpointSaver::save(int64_t step, int64_t samples) {
  if (!on_ || step == saved_step_) return {};
  const auto start = Clock::now();
  CheckpointIndex index;
  index.run = run_;
  index.save = exchange_texts(world_, random_id()).front();
  index.saved_at = milliseconds_since_1970();
  index.step = step;
  index.optimizer_steps = engine_.steps_taken();
  index.skipped_steps = engine_.steps_skipped();
  index.samples = samples;
  index.world = world_.size();
  index.zero_stage = zero_stage_;
  for (int i = 0; i < engine_.optimizer().state_count(); ++i) index.states.push_back(engine_.optimizer().state_name(i));
  index.config = config_;
  index.tensors = checkpoint_tensors(engine_.layouts(), world_.size());

  std::vector<std::string> notes;
  try {
    notes = write(index);
  } catch (const std::exception&) {
    if (world_.rank() == 0) abandon_checkpoint(out_dir_, step);
    throw;
  }
  saved_step_ = step;
  last_save_ = Clock::now();
  notes.insert(notes.begin(), fmt::format("saved {}/{}: {:.1f} MB in {:.2f} s", out_dir_, checkpoint_name(step),
                                          megabytes(index), seconds_since(start)));
  return notes;
}

std::vector<std::string> CheckpointSaver::write(CheckpointIndex& index) {
  const int rank = world_.rank(), size = world_.size();
  on_all_ranks(world_, [&] {
    if (rank == 0) begin_checkpoint(out_dir_, index.step);
  });
  CheckpointFile own;
  on_all_ranks(world_, [&] {
    own = write_shard(engine_, context_, fmt::format("{}/{}.partial", out_dir_, checkpoint_name(index.step)), index,
                      rank, size);
  });
  const std::vector<int64_t> words =
      exchange_words(world_, {own.bytes, static_cast<int64_t>(own.crc32c)}, "sizes of shards");
  for (int r = 0; r < size; ++r)
    index.files.push_back({shard_file_name(r, size), words[static_cast<size_t>(2 * r)],
                           static_cast<uint32_t>(words[static_cast<size_t>(2 * r + 1)])});
  std::vector<std::string> notes;
  on_all_ranks(world_, [&] {
    if (rank != 0) return;
    notes = finish_checkpoint(out_dir_, index);
    for (std::string& note : prune_checkpoints(out_dir_, index.run, keep_last_)) notes.push_back(std::move(note));
  });
  return notes;
}

}  // namespace trencadis
