#include "zero/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "runtime/check.h"
#include "zero/checkpoint/durable.h"

namespace trencadis {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPartial = ".partial";
constexpr const char* kReplaced = ".replaced";
constexpr const char* kIndex = "/index.json";

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  const char* remedy = error == ENOSPC || error == EDQUOT ? "; free some space there, or choose another folder"
                       : error == EACCES || error == EPERM || error == EROFS
                           ? "; make it writable, or choose another folder"
                       : error == ENOENT ? "; the folder has gone: do not move or remove it while a run uses it"
                                         : "";
  throw DataError(fmt::format("{}: {}: {}{}", path, what, std::strerror(error), remedy));
}

void write_file(const std::string& path, std::string_view text) {
  if (const FileFailure failure = write_synced(path, text)) fail(path, failure.what, failure.error);
}

void sync(const std::string& folder) {
  if (const FileFailure failure = sync_folder(folder)) fail(folder, failure.what, failure.error);
}

void rename_over(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail(to, "cannot take its name", errno);
}

std::string join(const std::string& folder, const std::string& name) { return folder + "/" + name; }

bool is_checkpoint_name(std::string_view name) {
  if (name.ends_with(kReplaced)) name.remove_suffix(std::strlen(kReplaced));
  return name.starts_with("step-") && name.size() >= 13 && name.find_first_not_of("0123456789", 5) == name.npos;
}

// A folder that takes long to remove first gets a name under which it passes for no checkpoint, and under which the next
// save clears it away should this process die. A note in case of failure.
std::optional<std::string> remove_folder(const std::string& folder) {
  std::error_code error;
  std::string doomed = folder;
  if (!folder.ends_with(kPartial)) {
    doomed += kPartial;
    fs::remove_all(doomed, error);
    fs::rename(folder, doomed, error);
  }
  if (!error) fs::remove_all(doomed, error);
  if (!error) return std::nullopt;
  return fmt::format("{}: could not be removed: {}", folder, error.message());
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("step-{:08}", step); }

CheckpointCandidate read_candidate(const std::string& folder) {
  std::ifstream file(folder + kIndex, std::ios::binary);
  if (!file)
    throw DataError(fmt::format("{}: cannot be read: {}; a checkpoint is a folder step-XXXXXXXX with an index.json",
                                folder + kIndex, std::strerror(errno)));
  std::stringstream text;
  text << file.rdbuf();
  CheckpointCandidate candidate{folder, text.str(), {}};
  candidate.index = parse_checkpoint_index(candidate.index_text, folder + kIndex);
  return candidate;
}

CheckpointListing list_checkpoints(const std::string& out_dir) {
  CheckpointListing listing;
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(out_dir, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error && error != std::errc::no_such_file_or_directory)
    throw DataError(fmt::format("{}: cannot be listed: {}", out_dir, error.message()));
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string path = join(out_dir, name);
    if (name.starts_with("step-") && name.ends_with(kPartial)) {
      listing.ignored.push_back(path + ": never finished; the run ended while it was saved, or removed");
    } else if (is_checkpoint_name(name)) {
      try {
        listing.candidates.push_back(read_candidate(path));
      } catch (const DataError& e) {
        listing.ignored.push_back(e.what());
      }
    }
  }
  std::stable_sort(listing.candidates.begin(), listing.candidates.end(),
                   [](const CheckpointCandidate& a, const CheckpointCandidate& b) {
                     return std::pair(a.index.saved_at, a.index.step) > std::pair(b.index.saved_at, b.index.step);
                   });
  return listing;
}

std::string begin_checkpoint(const std::string& out_dir, int64_t step) {
  const std::string partial = join(out_dir, checkpoint_name(step) + kPartial);
  std::error_code error;
  fs::remove_all(partial, error);
  // Not with the folders above it: an out_dir that has gone since the start is not to be made anew in silence.
  if (!fs::create_directory(partial, error) || error) fail(partial, "cannot be made", error ? error.value() : EEXIST);
  return partial;
}

std::vector<std::string> finish_checkpoint(const std::string& out_dir, CheckpointIndex index) {
  const std::string name = checkpoint_name(index.step), place = join(out_dir, name), partial = place + kPartial;
  for (const CheckpointFile& file : index.files) {
    std::error_code error;
    const auto size = fs::file_size(join(partial, file.name), error);
    if (error || static_cast<int64_t>(size) != file.bytes)
      throw DataError(
          fmt::format("{}: {}; it is the shard of another rank, and checkpoints need a folder that all "
                      "hosts share",
                      join(partial, file.name),
                      error ? "cannot be seen from rank 0: " + error.message()
                            : fmt::format("has {} of {} bytes as seen from rank 0", size, file.bytes)));
  }
  for (const CheckpointCandidate& other : list_checkpoints(out_dir).candidates)
    index.saved_at = std::max(index.saved_at, other.index.saved_at + 1);
  write_file(partial + kIndex, to_json(index));
  sync(partial);

  std::vector<std::string> notes;
  std::string replaced;
  if (fs::exists(place)) {
    // What stands there may be complete: it is a checkpoint under its other name as well, until the new one is there.
    std::string aside = replaced = place + kReplaced;
    try {
      const std::string run = read_candidate(place).index.run;
      if (run != index.run) {
        replaced.clear();
        aside = fmt::format("{}.of-run-{}", place, run);
        notes.push_back(fmt::format("{} was a checkpoint of another training; it is {} from here on", place, aside));
      }
    } catch (const DataError&) {
    }
    std::error_code ignored;
    fs::remove_all(aside, ignored);
    rename_over(place, aside);
  }
  rename_over(partial, place);
  sync(out_dir);
  if (!replaced.empty())
    if (std::optional<std::string> note = remove_folder(replaced)) notes.push_back(*std::move(note));

  const std::string latest = join(out_dir, "latest");
  write_file(latest + ".new", name + "\n");
  rename_over(latest + ".new", latest);
  sync(out_dir);
  return notes;
}

void abandon_checkpoint(const std::string& out_dir, int64_t step) noexcept {
  std::error_code ignored;
  fs::remove_all(join(out_dir, checkpoint_name(step) + kPartial), ignored);
  fs::remove(join(out_dir, "latest.new"), ignored);
}

std::vector<std::string> prune_checkpoints(const std::string& out_dir, const std::string& run, int64_t keep) {
  std::vector<std::string> doomed, notes;
  int64_t kept = 0;
  for (const CheckpointCandidate& candidate : list_checkpoints(out_dir).candidates)
    if (candidate.index.run == run && keep > 0 && ++kept > keep) doomed.push_back(candidate.folder);
  std::error_code error;
  for (fs::directory_iterator entry(out_dir, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("step-") && name.ends_with(kPartial)) doomed.push_back(join(out_dir, name));
  }
  for (const std::string& folder : doomed)
    if (std::optional<std::string> note = remove_folder(folder)) notes.push_back(*std::move(note));
  return notes;
}

FolderLock::FolderLock(const std::string& folder, const std::string& what, double patience) {
  const std::string path = join(folder, ".lock");
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(path, "cannot be opened", errno);
  using namespace std::chrono;
  const auto start = steady_clock::now();
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return;  // no locks here
    if (duration<double>(steady_clock::now() - start).count() >= patience) {
      ::close(descriptor_);
      throw DataError(
          fmt::format("{} '{}' is in use: another run saves its checkpoints there (it holds {}); wait for its end "
                      "or end it, or choose another",
                      what, folder, path));
    }
    std::this_thread::sleep_for(milliseconds(50));
  }
}

FolderLock::~FolderLock() { ::close(descriptor_); }

void check_folder_writable(const std::string& folder, const std::string& what, const std::string& or_else) {
  const std::string probe = join(folder, fmt::format(".writable-{}", ::getpid()));
  const int descriptor = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    const int error = errno;
    throw DataError(fmt::format("{} '{}' cannot be written to: {}; checkpoints go there: choose another{}", what,
                                folder, std::strerror(error), or_else));
  }
  ::close(descriptor);
  ::unlink(probe.c_str());
}

}  // namespace trencadis
