// What the tests of this folder share: a folder of files that goes away, and the text of the error that a call throws.
//
// Include project headers before this one: check.h and doctest both have a macro CHECK, and a test wants doctest's.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/check.h"

#ifndef DOCTEST_LIBRARY_INCLUDED  // else CHECK is doctest's already
#undef CHECK
#include <doctest/doctest.h>
#endif

namespace trencadis::test {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "trencadis-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path(const std::string& name) const { return path_ + "/" + name; }
  // Writes a file, its folders too, and returns its path.
  std::string write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  std::string path_;
};

// The text of the Exception that call() throws; "" if it throws none.
template <typename Exception, typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE("'" << part << "' is not in: " << text);
  return found;
}

}  // namespace trencadis::test
