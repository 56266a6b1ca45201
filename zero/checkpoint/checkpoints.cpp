#include "zero/checkpoint/checkpoints.h"

#include <chrono>
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

// What is said where it is saved, and where it is loaded.
std::string not_finite_note(const CheckpointIndex& index) {
  const int64_t count = index.not_finite();
  if (count == 0) return {};
  return fmt::format("; {} element{} NaN or infinite", count, count == 1 ? " is" : "s are");
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
                            bool with_states, bool as_saved) {
  const Clock::time_point start = Clock::now();
  std::vector<std::string> differences = model_differences(found.index, engine.layouts());
  std::vector<std::string> states;
  for (int i = 0; i < engine.optimizer().state_count(); ++i) states.push_back(engine.optimizer().state_name(i));
  if (with_states && !found.index.states.empty() && found.index.states != states)
    differences.push_back(fmt::format("the optimizer's state is {} in the checkpoint and {} here",
                                      fmt::join(found.index.states, ", "), fmt::join(states, ", ")));
  if (!differences.empty())
    throw Agreed<DataError>(fmt::format("{}: is of another model; take the settings of the run that saved it:\n  {}",
                                        found.folder, fmt::join(differences, "\n  ")));
  on_all_ranks(world, [&] {
    CheckpointReader(found.folder, found.index)
        .load(engine, context, with_states && !found.index.states.empty(), as_saved);
  });
  const double seconds = seconds_since(start);
  return fmt::format("loaded {}: {:.1f} MB in {:.2f} s, of which {:.2f} s to check them{}", found.folder,
                     megabytes(found.index), found.seconds + seconds, found.seconds, not_finite_note(found.index));
}

Checkpoints::Checkpoints(std::string folder, ZeroEngine& engine, Communicator& world, CheckpointOptions options,
                         const FoundCheckpoint* resumed)
    : folder_(std::move(folder)), engine_(engine), world_(world), options_(std::move(options)) {
  on_all_ranks(world, [&] {
    std::error_code ignored;  // the probe below says more
    if (world.rank() == 0) std::filesystem::create_directories(folder_, ignored);
  });
  on_all_ranks(world, [&] { check_folder_writable(folder_, options_.folder_is, options_.or_else); });
  on_all_ranks(world, [&] {
    if (world.rank() == 0) lock_ = std::make_unique<FolderLock>(folder_, options_.folder_is);
  });
  if (resumed && std::filesystem::path(resumed->folder).parent_path() == std::filesystem::path(folder_))
    saved_step_ = resumed->index.step;
  run_ = resumed ? resumed->index.run : exchange_texts(world, random_id()).front();
}

std::optional<CheckpointIndex> Checkpoints::load() {
  notes_.clear();
  const std::optional<FoundCheckpoint> found = find_checkpoint("", folder_, /*optional=*/true, world_, notes_);
  if (!found) return std::nullopt;
  notes_.push_back(load_checkpoint(*found, engine_, engine_.runtime().context, world_, /*with_states=*/true));
  run_ = found->index.run;
  saved_step_ = found->index.step;
  return found->index;
}

bool Checkpoints::save(int64_t step, int64_t samples) {
  notes_.clear();
  if (step == saved_step_) return false;
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
  index.zero_stage = engine_.options().stage;
  for (int i = 0; i < engine_.optimizer().state_count(); ++i) index.states.push_back(engine_.optimizer().state_name(i));
  index.config = options_.config;
  index.tensors = checkpoint_tensors(engine_.layouts(), world_.size());

  try {
    write(index);
  } catch (const std::exception&) {
    if (world_.rank() == 0) abandon_checkpoint(folder_, step);
    throw;
  }
  saved_step_ = step;
  notes_.insert(notes_.begin(), fmt::format("saved {}/{}: {:.1f} MB in {:.2f} s{}", folder_, checkpoint_name(step),
                                            megabytes(index), seconds_since(start), not_finite_note(index)));
  return true;
}

void Checkpoints::write(CheckpointIndex& index) {
  const int rank = world_.rank(), size = world_.size();
  on_all_ranks(world_, [&] {
    if (rank == 0) begin_checkpoint(folder_, index.step);
  });
  CheckpointFile own;
  on_all_ranks(world_, [&] {
    own = write_shard(engine_, engine_.runtime().context,
                      fmt::format("{}/{}.partial", folder_, checkpoint_name(index.step)), index, rank, size);
  });
  const std::vector<int64_t> words =
      exchange_words(world_, {own.bytes, static_cast<int64_t>(own.crc32c), own.not_finite}, "sizes of shards");
  for (int r = 0; r < size; ++r) {
    const int64_t* const of_rank = words.data() + 3 * r;
    index.files.push_back({shard_file_name(r, size), of_rank[0], static_cast<uint32_t>(of_rank[1]), of_rank[2]});
  }
  on_all_ranks(world_, [&] {
    if (rank != 0) return;
    notes_ = finish_checkpoint(folder_, index);
    for (std::string& note : prune_checkpoints(folder_, index.run, options_.keep_last))
      notes_.push_back(std::move(note));
  });
}

}  // namespace trencadis
