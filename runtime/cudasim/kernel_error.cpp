// Places in the source.
#include "runtime/cudasim/kernel_error.h"

#include <cstring>
#include <string_view>

namespace trencadis::cudasim {

bool same_place(const Place& a, const Place& b) {
  if (a.line() != b.line()) return false;
  return a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0;
}

std::string to_string(const Place& place) {
  const std::string_view path = place.file_name();
  return fmt::format("{}:{}", path.substr(path.find_last_of('/') + 1), place.line());
}

}  // namespace trencadis::cudasim
