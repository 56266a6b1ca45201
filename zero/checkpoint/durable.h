// Files and names that must be on the disk before the program goes on: what checkpoints and exports are made of.
#pragma once

#include <string>
#include <string_view>

namespace trencadis {

// What failed, and the system's number of the error. The caller says it in an Error, with the remedy for its flag.
struct FileFailure {
  const char* what = nullptr;  // "cannot be written", ...; null: nothing failed
  int error = 0;

  explicit operator bool() const { return what != nullptr; }
};

// Writes a new file, or one in the place of another, and brings it to the disk. Its name is safe only once the folder is.
FileFailure write_synced(const std::string& path, std::string_view text);

// Brings a folder's list of names to the disk. File systems that cannot sync a folder do so by themselves.
FileFailure sync_folder(const std::string& path);

}  // namespace trencadis
