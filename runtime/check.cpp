#include "runtime/check.h"

#include <cstring>

namespace trencadis::detail {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  const char* slash = std::strrchr(file, '/');
  throw Error(fmt::format("{} [{}:{}: {}]", message, slash ? slash + 1 : file, line, condition));
}

}  // namespace trencadis::detail
