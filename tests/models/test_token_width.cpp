// models/data: how wide the tokens of a file without a header are. Never pairs of what is one number.
#include <string>
#include <vector>

#include "models/data/dataset.h"
#include "models/data/token_files.h"
#include "temp_folder.h"
#include "token_bytes.h"

using namespace trencadis;
using namespace trencadis::test;

TEST_CASE("token files: plain tokens of 32 bits are known, and never read as pairs") {
  const TempFolder folder;
  std::vector<uint32_t> small, large;
  for (uint32_t i = 0; i < 1000; ++i) {
    small.push_back(i * 7919 % 50257);
    large.push_back(i * 104729 % 128256);
  }
  for (const std::vector<uint32_t>& ids : {small, large}) {
    const std::string path = folder.write("wide.bin", as_bytes(ids));
    const std::string error = open_error(path);
    for (const char* part : {"wide.bin", "32 bits", "every second token", "--token-bytes 4", "--token-bytes 2"})
      CHECK(contains(error, part));
    const auto files = TokenFiles::open(path, {4, "--token-bytes 4"});
    CHECK(read_all(*files, 128256) == std::vector<int32_t>(ids.begin(), ids.end()));
    CHECK_FALSE(files->is_text());
    // Said explicitly, it is so.
    CHECK(TokenFiles::open(path, {2, "--token-bytes 2"})->size() == 2000);
    // A vocabulary that needs them says it as well as the flag.
    const Dataset data = open_dataset(path, "", 128256);
    CHECK(read_all(*data.train.files, 128256) == std::vector<int32_t>(ids.begin(), ids.end()));
    CHECK(open_dataset(path, path, 128256, 4).val.size() == 1000);
    CHECK(contains(error_of<DataError>([&] { open_dataset(path, "", 50257); }), "--token-bytes 4"));
  }

  // 64 bits (numpy's default) are neither, however they would be read.
  const std::string path = folder.write("int64.bin", as_bytes(std::vector<uint64_t>(small.begin(), small.end())));
  for (const int64_t vocab_size : {0, 50257, 128256}) {
    const std::string error = error_of<DataError>([&] { open_dataset(path, "", vocab_size); });
    for (const char* part : {"int64.bin", "64 bits", "uint16 or uint32"}) CHECK(contains(error, part));
  }

  // Zeros at the start hide nothing; nor do they at the end.
  for (const bool zeros_first : {false, true}) {
    std::vector<uint32_t> far(100'000);
    for (size_t i = 0; i < 500; ++i) far[zeros_first ? far.size() - 1 - i : i] = small[i];
    CHECK(contains(open_error(folder.write("far.bin", as_bytes(far))), "--token-bytes 4"));
  }
}

TEST_CASE("token files: what has 16 bits is read so, whatever its zeros") {
  const TempFolder folder;
  const auto read = [&](const std::vector<uint16_t>& ids) {
    const auto files = TokenFiles::open(folder.write("a.bin", as_bytes(ids)));
    return read_all(*files, 65536) == std::vector<int32_t>(ids.begin(), ids.end());
  };
  std::vector<uint16_t> ids(2000);
  CHECK(read(ids));  // all zero
  for (const uint32_t alphabet : {2u, 4u, 65u, 50257u}) {
    uint32_t state = alphabet;
    for (uint16_t& id : ids) id = static_cast<uint16_t>((state = state * 1664525 + 1013904223) / 65536 % alphabet);
    CHECK(read(ids));
  }
  // Between zeros, 23 tokens may stand in even places by chance (once in 8 million); 24 are too many.
  ids.assign(2000, 0);
  for (size_t i = 0; i < 23; ++i) ids[40 * i] = static_cast<uint16_t>(1 + i);
  CHECK(read(ids));
  ids[1990] = 7;
  CHECK(contains(open_error(folder.write("a.bin", as_bytes(ids))), "--token-bytes"));
  // The last token would be half a one.
  ids.pop_back();
  CHECK(read(ids));
}

TEST_CASE("token files: a vocabulary that 16 bits do not hold is not read from them") {
  const TempFolder folder;
  std::vector<uint16_t> ids;
  for (uint32_t i = 0; i < 1000; ++i) ids.push_back(static_cast<uint16_t>(i * 7919 % 50257));
  const std::string path = folder.write("narrow.bin", as_bytes(ids));
  CHECK(open_dataset(path, "", 65536).vocab_size == 65536);
  std::string error = error_of<DataError>([&] { open_dataset(path, "", 65537); });
  for (const char* part : {"narrow.bin", "vocabulary of 65537", "16 bits", "read as plain uint32"})
    CHECK(contains(error, part));
  ids.pop_back();
  folder.write("narrow.bin", as_bytes(ids));
  error = error_of<DataError>([&] { open_dataset(path, "", 65537); });
  for (const char* part : {"narrow.bin", "1998 bytes", "not a multiple of 4", "vocabulary of 65537"})
    CHECK(contains(error, part));
  error = error_of<UsageError>([&] { open_dataset(path, "", 65537, 2); });
  for (const char* part : {"--token-bytes 2", "vocabulary of 65537", "--token-bytes 4"}) CHECK(contains(error, part));
  error = error_of<DataError>([&] { open_dataset(path, "", 0, 4); });
  for (const char* part : {"narrow.bin", "not a multiple of 4", "--token-bytes 4"}) CHECK(contains(error, part));

  // A header says it better, whatever the flag.
  const std::string llmc = folder.write("llmc.bin", header(20240520, 1, 999) + as_bytes(ids));
  CHECK(open_dataset(llmc, llmc, 128256, 4).train.size() == 999);
}
