#include "zero/checkpoint/index.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/crc32c.h"

namespace trencadis {

using nlohmann::ordered_json;

namespace {

constexpr const char* kFormat = "trencadis checkpoint";
// The CRC is taken of the text with these digits in its place.
constexpr std::string_view kCrcKey = "\"crc32c\": \"", kNoCrc = "00000000";

uint32_t crc_of(std::string_view text) {
  Crc32c crc;
  crc.update(text.data(), text.size());
  return crc.value();
}

// Reads fields of one JSON object; every error names the index, the place and the field.
class Fields {
 public:
  Fields(const ordered_json& json, const std::string& file, std::string place)
      : json_(json), file_(file), place_(std::move(place)) {
    if (!json_.is_object()) fail("is no object");
  }

  bool has(const char* key) const { return json_.contains(key); }
  const ordered_json& at(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) fail(fmt::format("has no '{}'", key));
    return *found;
  }
  std::string text(const char* key) const {
    const ordered_json& value = at(key);
    if (!value.is_string()) fail(fmt::format("'{}' is no string", key));
    return value.get<std::string>();
  }
  // Whole, not negative.
  int64_t number(const char* key) const { return number(at(key), key); }
  int64_t number(const ordered_json& value, const char* key) const {
    if (!value.is_number_integer() || value.is_number_float() ||
        (value.is_number_unsigned() &&
         value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) ||
        value.get<int64_t>() < 0)
      fail(fmt::format("'{}' is no whole number from 0", key));
    return value.get<int64_t>();
  }
  int small_number(const char* key) const {
    const int64_t value = number(key);
    if (value > std::numeric_limits<int>::max()) fail(fmt::format("'{}' is {}, too large", key, value));
    return static_cast<int>(value);
  }
  bool boolean(const char* key) const {
    const ordered_json& value = at(key);
    if (!value.is_boolean()) fail(fmt::format("'{}' is neither true nor false", key));
    return value.get<bool>();
  }
  const ordered_json& array(const char* key) const {
    const ordered_json& value = at(key);
    if (!value.is_array()) fail(fmt::format("'{}' is no array", key));
    return value;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(fmt::format("{}: {} {}", file_, place_, what));
  }

 private:
  const ordered_json& json_;
  const std::string& file_;
  std::string place_;
};

uint32_t parse_crc(const Fields& fields, const char* key) {
  const std::string text = fields.text(key);
  if (text.size() != 8 || text.find_first_not_of("0123456789ABCDEF") != std::string::npos)
    fields.fail(fmt::format("'{}' is '{}', not 8 hex digits", key, text));
  return static_cast<uint32_t>(std::stoul(text, nullptr, 16));
}

CheckpointTensor parse_tensor(const Fields& fields, size_t files) {
  CheckpointTensor tensor;
  tensor.name = fields.text("name");
  tensor.trainable = fields.boolean("trainable");
  int64_t elements = 1;
  for (const ordered_json& extent : fields.array("shape")) {
    tensor.shape.push_back(fields.number(extent, "shape"));
    if (__builtin_mul_overflow(elements, tensor.shape.back(), &elements) || elements > (int64_t{1} << 58))
      fields.fail("has a shape of more elements than any machine holds");
  }
  int64_t covered = 0;
  for (const ordered_json& slice : fields.array("slices")) {
    if (!slice.is_array() || slice.size() != 3) fields.fail("has a slice that is not [file, first, count]");
    const int64_t file = fields.number(slice[0], "slices"), first = fields.number(slice[1], "slices"),
                  count = fields.number(slice[2], "slices");
    if (static_cast<uint64_t>(file) >= files) fields.fail(fmt::format("has a slice in file {} of {}", file, files));
    if (first != covered || count < 1 || count > elements - covered)
      fields.fail(fmt::format("has a slice of {} elements from {} where {} of {} are covered", count, first, covered,
                              elements));
    covered += count;
    tensor.slices.push_back({static_cast<int>(file), first, count});
  }
  if (covered != elements) fields.fail(fmt::format("has slices for {} of {} elements", covered, elements));
  return tensor;
}

void check_crc(std::string_view json, const std::string& name) {
  const size_t at = json.find(kCrcKey);
  if (at == std::string_view::npos || at + kCrcKey.size() + kNoCrc.size() > json.size())
    throw DataError(fmt::format("{}: is no index of a checkpoint: it has no \"crc32c\"", name));
  const std::string said(json.substr(at + kCrcKey.size(), kNoCrc.size()));
  std::string text(json);
  text.replace(at + kCrcKey.size(), kNoCrc.size(), kNoCrc);
  const std::string is = fmt::format("{:08X}", crc_of(text));
  if (said != is) throw DataError(fmt::format("{}: is damaged: its CRC-32C is {}, it says {}", name, is, said));
}

CheckpointIndex parse(const ordered_json& json, const std::string& name) {
  const Fields top(json, name, "the index");
  if (top.text("format") != kFormat) top.fail(fmt::format("'format' is '{}', not '{}'", top.text("format"), kFormat));
  if (const int64_t version = top.number("version"); version != CheckpointIndex::kVersion)
    top.fail(fmt::format("is of version {}; this program reads version {}", version, CheckpointIndex::kVersion));

  CheckpointIndex index;
  index.run = top.text("run");
  index.save = top.text("save");
  index.saved_at = top.number("saved_at");
  index.step = top.number("step");
  index.optimizer_steps = top.number("optimizer_steps");
  index.skipped_steps = top.number("skipped_steps");
  index.samples = top.number("samples");
  index.world = top.small_number("world");
  index.zero_stage = top.small_number("zero_stage");
  for (const ordered_json& state : top.array("states")) {
    if (!state.is_string()) top.fail("'states' holds something that is no string");
    index.states.push_back(state.get<std::string>());
  }
  const ordered_json& config = top.at("config");
  if (!config.is_object()) top.fail("'config' is no object");
  for (const auto& [key, value] : config.items()) {
    if (!value.is_string()) top.fail(fmt::format("'config' holds '{}', which is no string", key));
    index.config.emplace_back(key, value.get<std::string>());
  }
  std::set<std::string> names;
  for (const ordered_json& entry : top.array("files")) {
    const Fields fields(entry, name, fmt::format("file {}", index.files.size()));
    CheckpointFile file;
    file.name = fields.text("name");
    if (file.name.empty() || file.name.find('/') != std::string::npos || file.name.front() == '.' ||
        file.name.find('\0') != std::string::npos || !names.insert(file.name).second)
      fields.fail(fmt::format("'name' is '{}', which is no file of this folder, or one named twice", file.name));
    file.bytes = fields.number("bytes");
    file.crc32c = parse_crc(fields, "crc32c");
    if (fields.has("not_finite")) file.not_finite = fields.number("not_finite");
    if (file.not_finite > file.bytes / 4)
      fields.fail(fmt::format("'not_finite' is {}, and {} bytes hold no more than {} elements", file.not_finite,
                              file.bytes, file.bytes / 4));
    index.files.push_back(std::move(file));
  }
  names.clear();
  for (const ordered_json& entry : top.array("tensors")) {
    index.tensors.push_back(
        parse_tensor({entry, name, fmt::format("tensor {}", index.tensors.size())}, index.files.size()));
    if (!names.insert(index.tensors.back().name).second)
      top.fail(fmt::format("has tensor '{}' twice", index.tensors.back().name));
  }
  return index;
}

}  // namespace

int64_t CheckpointTensor::elements() const {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

int64_t CheckpointIndex::not_finite() const {
  int64_t sum = 0;
  for (const CheckpointFile& file : files) sum += file.not_finite;
  return sum;
}

std::string CheckpointIndex::setting(std::string_view key) const {
  for (const auto& [name, value] : config)
    if (name == key) return value;
  return {};
}

std::string to_json(const CheckpointIndex& index) {
  // A flag may hold any bytes (a prompt, a path); what is not UTF-8 is replaced.
  const auto dump = [](const ordered_json& json) {
    return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  };
  std::string text = "{";
  const auto add = [&](const char* key, const std::string& value) {
    text += fmt::format("{}\n\"{}\": {}", text.size() > 1 ? "," : "", key, value);
  };
  // One entry a line, for people who look into it.
  const auto lines = [](char open, const std::vector<std::string>& entries, char close) {
    return fmt::format("{}\n  {}\n{}", open, fmt::join(entries, ",\n  "), close);
  };
  add("format", dump(kFormat));
  add("version", dump(CheckpointIndex::kVersion));
  add("crc32c", dump(std::string(kNoCrc)));
  add("run", dump(index.run));
  add("save", dump(index.save));
  add("saved_at", dump(index.saved_at));
  add("step", dump(index.step));
  add("optimizer_steps", dump(index.optimizer_steps));
  add("skipped_steps", dump(index.skipped_steps));
  add("samples", dump(index.samples));
  add("world", dump(index.world));
  add("zero_stage", dump(index.zero_stage));
  add("states", dump(index.states));
  std::vector<std::string> entries;
  for (const auto& [key, value] : index.config) entries.push_back(dump(key) + ": " + dump(value));
  add("config", lines('{', std::exchange(entries, {}), '}'));
  for (const CheckpointFile& file : index.files) {
    ordered_json entry = {{"name", file.name}, {"bytes", file.bytes}, {"crc32c", fmt::format("{:08X}", file.crc32c)}};
    if (file.not_finite > 0) entry["not_finite"] = file.not_finite;
    entries.push_back(dump(entry));
  }
  add("files", lines('[', std::exchange(entries, {}), ']'));
  for (const CheckpointTensor& tensor : index.tensors) {
    ordered_json slices = ordered_json::array();
    for (const CheckpointSlice& s : tensor.slices) slices.push_back(ordered_json::array({s.file, s.first, s.count}));
    entries.push_back(
        dump({{"name", tensor.name}, {"shape", tensor.shape}, {"trainable", tensor.trainable}, {"slices", slices}}));
  }
  add("tensors", lines('[', entries, ']'));
  text += "\n}\n";
  const size_t at = text.find(kCrcKey) + kCrcKey.size();
  return text.replace(at, kNoCrc.size(), fmt::format("{:08X}", crc_of(text)));
}

CheckpointIndex parse_checkpoint_index(std::string_view json, const std::string& name) {
  check_crc(json, name);
  const ordered_json parsed = ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) throw DataError(fmt::format("{}: is no JSON", name));
  return parse(parsed, name);
}

std::vector<CheckpointTensor> checkpoint_tensors(const std::vector<FlatUnit>& layouts, int world) {
  std::vector<CheckpointTensor> tensors;
  for (const FlatUnit& unit : layouts)
    for (const FlatSegment& segment : unit.segments) {
      const size_t base = tensors.size();
      for (const FlatEntry& entry : segment.entries())
        tensors.push_back({entry.parameter->name, entry.parameter->shape, segment.trainable(), {}});
      for (int rank = 0; rank < world; ++rank)
        segment.for_each_slice(segment.range_of(rank), [&](const FlatSlice& slice) {
          const auto number = static_cast<size_t>(slice.entry - segment.entries().data());
          tensors[base + number].slices.push_back({rank, slice.first, slice.count});
        });
    }
  return tensors;
}

std::string shard_file_name(int rank, int world) { return fmt::format("rank-{:04}-of-{:04}.safetensors", rank, world); }

}  // namespace trencadis
