// The index of a checkpoint: what it says comes back, and what is not whole is refused.
// The project's headers first, see temp_folder.h.
// clang-format off
#include "runtime/crc32c.h"
#include "zero/checkpoint/index.h"
#include "../../models/temp_folder.h"
// clang-format on

namespace trencadis::test {

namespace {

CheckpointIndex example() {
  CheckpointIndex index;
  index.run = "00000000deadbeef";
  index.save = "0123456789abcdef";
  index.saved_at = 1'700'000'000'000;
  index.step = 12;
  index.optimizer_steps = 11;
  index.skipped_steps = 1;
  index.samples = 96;
  index.world = 2;
  index.zero_stage = 3;
  index.states = {"exp_avg", "exp_avg_sq"};
  index.config = {{"n-layer", "2"}, {"prompt", "say \"hi\"\n"}};
  index.files = {{"rank-0000-of-0002.safetensors", 100, 0xCAFEBABE}, {"rank-0001-of-0002.safetensors", 90, 7}};
  index.tensors = {
      {"a", {3, 4}, true, {{0, 0, 7}, {1, 7, 5}}}, {"empty", {0, 4}, false, {}}, {"b", {}, true, {{1, 0, 1}}}};
  return index;
}

// The text with one piece replaced and its checksum made right again.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = to_json(example());
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
  const std::string key = "\"crc32c\": \"";
  const size_t digits = text.find(key) + key.size();
  text.replace(digits, 8, "00000000");
  Crc32c crc;
  crc.update(text.data(), text.size());
  return text.replace(digits, 8, fmt::format("{:08X}", crc.value()));
}

std::string error(const std::string& text) {
  return error_of<DataError>([&] { parse_checkpoint_index(text, "here/index.json"); });
}

}  // namespace

TEST_CASE("index: what was written is read back") {
  const CheckpointIndex index = parse_checkpoint_index(to_json(example()), "x");
  CHECK(to_json(index) == to_json(example()));
  CHECK(index.tensors[0].slices[1].first == 7);
  CHECK(index.setting("prompt") == "say \"hi\"\n");
  CHECK(index.setting("nothing") == "");
  CHECK(index.tensors[2].elements() == 1);
}

TEST_CASE("index: what was not finite when it was saved") {
  CheckpointIndex index = example();
  CHECK(index.not_finite() == 0);
  CHECK(to_json(index).find("not_finite") == std::string::npos);  // as indices had it before
  index.files[1].not_finite = 22;
  const CheckpointIndex read = parse_checkpoint_index(to_json(index), "x");
  CHECK(read.files[0].not_finite == 0);
  CHECK(read.files[1].not_finite == 22);
  CHECK(read.not_finite() == 22);
  index.files[1].not_finite = 23;
  CHECK(contains(error(to_json(index)), "file 1 'not_finite' is 23, and 90 bytes hold no more than 22 elements"));
  CHECK(
      contains(error(changed("\"bytes\":100", "\"bytes\":100,\"not_finite\":-1")), "'not_finite' is no whole number"));
}

TEST_CASE("index: one changed byte is noticed") {
  const std::string text = to_json(example());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    REQUIRE(error(damaged) != "");
  }
  for (size_t n = 0; n < text.size(); ++n) REQUIRE(error(text.substr(0, n)) != "");
}

TEST_CASE("index: what does not fit together is refused, with its place") {
  CHECK(contains(error(changed("\"version\": 1", "\"version\": 2")), "is of version 2; this program reads version 1"));
  CHECK(contains(error(changed("trencadis checkpoint", "somebody's")), "'format' is 'somebody's'"));
  CHECK(contains(error(changed("\"step\": 12", "\"step\": -12")), "'step' is no whole number"));
  CHECK(contains(error(changed("\"step\": 12", "\"step\": 1.5")), "'step' is no whole number"));
  CHECK(contains(error(changed("\"step\": 12", "\"steps\": 12")), "has no 'step'"));
  CHECK(contains(error(changed("rank-0001-of-0002.safetensors", "../evil")), "no file of this folder"));
  CHECK(contains(error(changed("rank-0001-of-0002.safetensors", "rank-0000-of-0002.safetensors")), "named twice"));
  CHECK(contains(error(changed("CAFEBABE", "cafebabe")), "not 8 hex digits"));
  CHECK(contains(error(changed("\"a\"", "\"b\"")), "tensor 'b' twice"));
  // Slices: a hole, an overlap, a rest, too much, a file that is not there; a shape that no machine holds.
  const std::string slices = to_json(example());
  const auto with = [](int64_t first, int64_t count, int file) {
    CheckpointIndex index = example();
    index.tensors[0].slices[1] = {file, first, count};
    return error(to_json(index));
  };
  CHECK(contains(with(8, 4, 1), "from 8 where 7 of 12 are covered"));
  CHECK(contains(with(6, 6, 1), "from 6 where 7 of 12 are covered"));
  CHECK(contains(with(7, 4, 1), "slices for 11 of 12 elements"));
  CHECK(contains(with(7, 6, 1), "a slice of 6 elements from 7"));
  CHECK(contains(with(7, 5, 2), "a slice in file 2 of 2"));
  CheckpointIndex huge = example();
  huge.tensors[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
  CHECK(contains(error(to_json(huge)), "more elements than any machine holds"));
}

}  // namespace trencadis::test
