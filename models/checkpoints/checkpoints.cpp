#include "models/checkpoints/checkpoints.h"

#include <algorithm>
#include <filesystem>
#include <random>

#include "dist/on_all_ranks.h"
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

}  // namespace

std::optional<FoundCheckpoint> find_checkpoint(const std::string& asked, const std::string& place, bool optional,
                                               Communicator& world, std::vector<std::string>& notes) {
  const Clock::time_point start = Clock::now();
  const bool chief = world.rank() == 0;
  CheckpointListing listing;  // rank 0's is what counts
  bool named = false;         // the folder of one checkpoint: no other will do
  on_all_ranks(world, [&] {
    if (!chief) return;
    named = std::filesystem::exists(place + "/index.json");
    if (!optional && !std::filesystem::is_directory(place))
      throw DataError(
          fmt::format("{} {}: there is no such folder; name a checkpoint, or the --out-dir of a run", asked, place));
    if (named)
      listing.candidates.push_back(read_candidate(place));
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
  if (!found && !optional) {
    const std::string why = exchange_texts(world, fmt::format("{}", fmt::join(ignored, "; "))).front();
    throw Agreed<DataError>(
        fmt::format("{} {}: there is no complete checkpoint{}", asked, place, why.empty() ? "" : ": " + why));
  }
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

CheckpointSaver::CheckpointSaver(SaveOptions options, Communicator& world, Context& context, ZeroEngine& engine,
                                 const FoundCheckpoint* resumed)
    : options_(std::move(options)), world_(world), context_(context), engine_(engine) {
  if (!options_.on) return;
  on_all_ranks(world, [&] {
    std::error_code ignored;  // the probe below says more
    if (world.rank() == 0) std::filesystem::create_directories(options_.out_dir, ignored);
  });
  on_all_ranks(world, [&] { check_folder_writable(options_.out_dir, "--out-dir"); });
  on_all_ranks(world, [&] {
    if (world.rank() == 0) lock_ = std::make_unique<FolderLock>(options_.out_dir);
  });
  if (resumed && std::filesystem::path(resumed->folder).parent_path() == std::filesystem::path(options_.out_dir))
    saved_step_ = resumed->index.step;
  run_ = resumed ? resumed->index.run : exchange_texts(world, random_id()).front();
}

bool CheckpointSaver::overdue() const {
  return options_.on && options_.interval_seconds > 0 && world_.rank() == 0 &&
         seconds_since(last_save_) >= options_.interval_seconds;
}

bool CheckpointSaver::due_at(int64_t step) const {
  return options_.on && options_.interval_steps > 0 && step % options_.interval_steps == 0;
}

std::vector<std::string> CheckpointSaver::save(int64_t step, int64_t samples) {
  if (!options_.on || step == saved_step_) return {};
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
  index.zero_stage = options_.zero_stage;
  for (int i = 0; i < engine_.optimizer().state_count(); ++i) index.states.push_back(engine_.optimizer().state_name(i));
  index.config = options_.config;
  index.tensors = checkpoint_tensors(engine_.layouts(), world_.size());

  std::vector<std::string> notes;
  try {
    notes = write(index);
  } catch (const std::exception&) {
    if (world_.rank() == 0) abandon_checkpoint(options_.out_dir, step);
    throw;
  }
  saved_step_ = step;
  last_save_ = Clock::now();
  notes.insert(notes.begin(), fmt::format("saved {}/{}: {:.1f} MB in {:.2f} s", options_.out_dir, checkpoint_name(step),
                                          megabytes(index), seconds_since(start)));
  return notes;
}

std::vector<std::string> CheckpointSaver::write(CheckpointIndex& index) {
  const int rank = world_.rank(), size = world_.size();
  on_all_ranks(world_, [&] {
    if (rank == 0) begin_checkpoint(options_.out_dir, index.step);
  });
  CheckpointFile own;
  on_all_ranks(world_, [&] {
    own = write_shard(engine_, context_, fmt::format("{}/{}.partial", options_.out_dir, checkpoint_name(index.step)),
                      index, rank, size);
  });
  const std::vector<int64_t> words =
      exchange_words(world_, {own.bytes, static_cast<int64_t>(own.crc32c)}, "sizes of shards");
  for (int r = 0; r < size; ++r)
    index.files.push_back({shard_file_name(r, size), words[static_cast<size_t>(2 * r)],
                           static_cast<uint32_t>(words[static_cast<size_t>(2 * r + 1)])});
  std::vector<std::string> notes;
  on_all_ranks(world_, [&] {
    if (rank != 0) return;
    notes = finish_checkpoint(options_.out_dir, index);
    for (std::string& note : prune_checkpoints(options_.out_dir, index.run, options_.keep_last))
      notes.push_back(std::move(note));
  });
  return notes;
}

}  // namespace trencadis
