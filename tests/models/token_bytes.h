// Files of tokens for tests: their bytes, and what TokenFiles makes of them.
#pragma once

#include <string>
#include <vector>

#include "models/data/token_files.h"
#include "temp_folder.h"

namespace trencadis::test {

template <typename Number>
std::string as_bytes(const std::vector<Number>& numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number));
}

inline std::string header(uint32_t magic, uint32_t version, uint32_t count) {
  std::vector<uint32_t> words(256);
  words[0] = magic, words[1] = version, words[2] = count;
  return as_bytes(words);
}

inline std::vector<int32_t> read_all(const TokenFiles& files, int64_t vocab_size) {
  std::vector<int32_t> tokens(static_cast<size_t>(files.size()));
  files.read(0, files.size(), vocab_size, tokens.data());
  return tokens;
}

inline std::string open_error(const std::string& pattern) {
  return error_of<DataError>([&] { TokenFiles::open(pattern); });
}

}  // namespace trencadis::test
