#include "models/trainer/checkpoint_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/check.h"

namespace trencadis {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPartial = ".partial";
constexpr const char* kIndex = "/index.json";

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  const char* remedy = error == ENOSPC || error == EDQUOT ? "; free some space there, or choose another --out-dir"
                       : error == EACCES || error == EPERM || error == EROFS
                           ? "; make it writable, or choose another --out-dir"
                       : error == ENOENT ? "; the folder has gone: do not move or remove --out-dir while a run uses it"
                                         : "";
  throw DataError(fmt::format("{}: {}: {}{}", path, what, std::strerror(error), remedy));
}

class File {
 public:
  File(const std::string& path, int flags) : path_(path), descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) fail(path, "cannot be opened", errno);
  }
  ~File() { ::close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t done = ::write(descriptor_, text.data(), text.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail(path_, "cannot be written", errno);
      text.remove_prefix(static_cast<size_t>(done));
    }
  }
  // Some file systems cannot sync a folder, and say EINVAL.
  void sync() {
    if (::fsync(descriptor_) != 0 && errno != EINVAL) fail(path_, "cannot be brought to the disk", errno);
  }

 private:
  std::string path_;
  int descriptor_;
};

void write_synced(const std::string& path, std::string_view text) {
  File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  file.write(text);
  file.sync();
}

void sync_folder(const std::string& path) { File(path, O_RDONLY | O_DIRECTORY).sync(); }

void rename_over(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail(to, "cannot take its name", errno);
}

std::string join(const std::string& folder, const std::string& name) { return folder + "/" + name; }

bool is_checkpoint_name(const std::string& name) {
  return name.starts_with("step-") && name.size() >= 13 && name.find_first_not_of("0123456789", 5) == std::string::npos;
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
      listing.ignored.push_back(path + ": never finished; the run ended while it was saved");
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

std::vector<std::string> finish_checkpoint(const std::string& out_dir, const CheckpointIndex& index) {
  const std::string name = checkpoint_name(index.step), place = join(out_dir, name), partial = place + kPartial;
  for (const CheckpointFile& file : index.files) {
    std::error_code error;
    const auto size = fs::file_size(join(partial, file.name), error);
    if (error || static_cast<int64_t>(size) != file.bytes)
      throw DataError(
          fmt::format("{}: {}; it is the shard of another rank, and --out-dir must be a folder that all "
                      "hosts share",
                      join(partial, file.name),
                      error ? "cannot be seen from rank 0: " + error.message()
                            : fmt::format("has {} of {} bytes as seen from rank 0", size, file.bytes)));
  }
  write_synced(partial + kIndex, to_json(index));
  sync_folder(partial);

  std::vector<std::string> notes;
  std::string aside;
  if (fs::exists(place)) {
    // What stands there may be complete and is not to be lost: both change names at once, or neither.
    try {
      const CheckpointIndex old = read_candidate(place).index;
      if (old.run != index.run) aside = fmt::format("{}.of-run-{}", place, old.run);
    } catch (const DataError&) {
    }
    if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) != 0) {
      if (errno != EINVAL && errno != ENOSYS) fail(place, "cannot be replaced", errno);
      // A file system that cannot exchange: the old one waits under another name.
      const std::string old = place + ".replaced";
      std::error_code ignored;
      fs::remove_all(old, ignored);
      rename_over(place, old);
      rename_over(partial, place);
      rename_over(old, partial);
    }
    std::error_code error;
    if (aside.empty()) {
      fs::remove_all(partial, error);
    } else {
      fs::remove_all(aside, error);
      fs::rename(partial, aside, error);
      notes.push_back(fmt::format("{} was a checkpoint of another training; it is {} from here on", place, aside));
    }
  } else {
    rename_over(partial, place);
  }
  sync_folder(out_dir);

  const std::string latest = join(out_dir, "latest");
  write_synced(latest + ".new", name + "\n");
  rename_over(latest + ".new", latest);
  sync_folder(out_dir);
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
  for (const std::string& folder : doomed) {
    // Without its index a folder that is half removed passes for no checkpoint.
    fs::remove(folder + kIndex, error);
    fs::remove_all(folder, error);
    if (error) notes.push_back(fmt::format("{}: could not be removed: {}", folder, error.message()));
  }
  return notes;
}

void check_folder_writable(const std::string& folder, const std::string& what) {
  const std::string probe = join(folder, fmt::format(".writable-{}", ::getpid()));
  const int descriptor = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    const int error = errno;
    throw DataError(
        fmt::format("{} '{}' cannot be written to: {}; checkpoints go there: choose another, or "
                    "--save-interval off",
                    what, folder, std::strerror(error)));
  }
  ::close(descriptor);
  ::unlink(probe.c_str());
}

}  // namespace trencadis
