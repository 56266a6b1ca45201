#include "zero/checkpoint/durable.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace trencadis {

namespace {

FileFailure write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(descriptor, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return {"cannot be written", errno};
    text.remove_prefix(static_cast<size_t>(done));
  }
  return {};
}

// Some file systems cannot sync a folder, and say EINVAL.
FileFailure open_and_sync(const std::string& path, int flags, std::string_view text) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (descriptor < 0) return {"cannot be opened", errno};
  FileFailure failure = write_all(descriptor, text);
  if (!failure && ::fsync(descriptor) != 0 && errno != EINVAL) failure = {"cannot be brought to the disk", errno};
  ::close(descriptor);
  return failure;
}

}  // namespace

FileFailure write_synced(const std::string& path, std::string_view text) {
  return open_and_sync(path, O_WRONLY | O_CREAT | O_TRUNC, text);
}

FileFailure sync_folder(const std::string& path) { return open_and_sync(path, O_RDONLY | O_DIRECTORY, {}); }

}  // namespace trencadis
