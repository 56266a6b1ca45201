// The header of safetensors.h: JSON to entries and back.
//
// Parsed with nlohmann-json's events (SAX) and not as a tree: a tree keeps one of two equal keys and says nothing, and it
// would hold a header of 100 MB twice. What the parser lets through and must not is refused before it: a byte order mark
// (no '{' in front) and a zero byte, which it takes for the end.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "runtime/check.h"
#include "zero/checkpoint/safetensors.h"

namespace trencadis {

namespace {

using nlohmann::json;

constexpr const char* kMetadataKey = "__metadata__";

// A string of the file as it may stand in a message: short, and without control characters.
std::string shown(std::string_view text) {
  constexpr size_t longest = 120;
  size_t size = std::min(text.size(), longest);
  while (size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;  // whole characters
  std::string result(text.substr(0, size));
  for (char& c : result)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  return size < text.size() ? result + "..." : result;
}

std::string shown(const std::vector<int64_t>& numbers) {
  constexpr size_t most = 16;
  const size_t count = std::min(numbers.size(), most);
  return fmt::format("[{}{}]", fmt::join(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(count), ","),
                     count < numbers.size() ? ",..." : "");
}

// Of type and shape; none if it goes beyond int64. From left to right, so that a 0 saves only what stands behind it, as
// in the reference.
std::optional<int64_t> bytes_of(const SafetensorsEntry& entry) {
  int64_t count = 1;
  for (const int64_t size : entry.shape)
    if (__builtin_mul_overflow(count, size, &count)) return std::nullopt;
  if (__builtin_mul_overflow(count, safetensors_element_bytes(entry.dtype), &count)) return std::nullopt;
  return count;
}

// Receives the events of the parser. Each throws DataError at the first thing that is wrong.
class HeaderEvents final : public nlohmann::json_sax<json> {
 public:
  explicit HeaderEvents(const std::string& file) : file_(file) {}

  // Entries in the order of the text; offsets not compared with anything yet.
  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a truth value"); }
  bool number_integer(number_integer_t) override { return other("a negative number"); }  // those with a minus, also -0
  bool number_float(number_float_t, const string_t&) override {
    return other("a number with fraction or exponent, or one beyond 64 bits");
  }
  bool binary(binary_t&) override { return other("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    const Place place = here();
    if (place != Place::shape && place != Place::offsets) return other("a number");
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max()))
      fail("{}: {} is beyond 64 bits", what(), value);
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    const Place place = here();
    if (place == Place::metadata) {
      header_.metadata.emplace(keys_.back(), std::move(value));
    } else if (place == Place::entry && key_is("dtype")) {
      if (safetensors_element_bytes(value) == 0)
        fail("{}: '{}' is no type of the format, or one of less than a byte, which is not read here", what(),
             shown(value));
      entry().dtype = std::move(value);
    } else {
      return other("a string");
    }
    return true;
  }

  bool start_object(size_t) override {
    const Place place = here();
    if (place == Place::file)
      open(Place::header);
    else if (place == Place::header && key_is(kMetadataKey))
      open(Place::metadata);
    else if (place == Place::header)
      header_.entries.emplace_back().name = keys_.back(), has_shape_ = has_offsets_ = false, open(Place::entry);
    else if (skips())
      open(Place::skipped);
    else
      other("an object");
    return true;
  }

  bool start_array(size_t) override {
    const Place place = here();
    numbers_.clear();
    if (place == Place::entry && key_is("shape"))
      open(Place::shape);
    else if (place == Place::entry && key_is("data_offsets"))
      open(Place::offsets);
    else if (skips())
      open(Place::skipped);
    else
      other("an array");
    return true;
  }

  bool key(string_t& name) override {
    if (!seen_.back().insert(name).second) fail("the key '{}' occurs twice in {}", shown(name), container());
    keys_.back() = std::move(name);
    return true;
  }

  bool end_object() override {
    if (inside_.back() == Place::entry) {
      const char* missing = entry().dtype.empty() ? "dtype"
                            : !has_shape_         ? "shape"
                            : has_offsets_        ? ""
                                                  : "data_offsets";
      if (*missing) fail("tensor '{}' has no {}", shown(entry().name), missing);
    }
    close();
    return true;
  }

  bool end_array() override {
    if (inside_.back() == Place::shape) {
      entry().shape = numbers_, has_shape_ = true;
    } else if (inside_.back() == Place::offsets) {
      if (numbers_.size() != 2) fail("{}: expected begin and end, found {} numbers", what(), numbers_.size());
      entry().begin = numbers_[0], entry().end = numbers_[1], has_offsets_ = true;
    }
    close();
    return true;
  }

  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    fail("the header is not valid JSON at its byte {}", position);
  }

 private:
  // Which object or array an event stands in. `skipped` is inside a field that the format does not know.
  enum class Place { file, header, metadata, entry, shape, offsets, skipped };

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    throw DataError(fmt::format("{}: {}; the file is damaged or no safetensors file: fetch or write it again", file_,
                                fmt::format(text, std::forward<Args>(args)...)));
  }

  Place here() const { return inside_.empty() ? Place::file : inside_.back(); }
  bool key_is(std::string_view name) const { return keys_.back() == name; }
  SafetensorsEntry& entry() { return header_.entries.back(); }

  // What a value stands for, in words.
  std::string what() const {
    if (inside_.empty()) return "the header";
    // In an array, the key is that of the object around it.
    const size_t level = keys_.size() - (inside_.back() == Place::shape || inside_.back() == Place::offsets ? 2 : 1);
    const std::string key = shown(keys_[level]);
    if (inside_[level] == Place::header) return key == kMetadataKey ? key : fmt::format("tensor '{}'", key);
    if (inside_[level] == Place::metadata) return fmt::format("{} '{}'", kMetadataKey, key);
    return fmt::format("tensor '{}': {}", shown(header_.entries.back().name), key);
  }

  std::string container() const {
    if (inside_.back() == Place::header) return "the header";
    if (inside_.back() == Place::metadata) return kMetadataKey;
    return fmt::format("tensor '{}'", shown(header_.entries.back().name));
  }

  // Whether the next value is of no interest.
  bool skips() const {
    if (inside_.empty()) return false;
    if (inside_.back() == Place::skipped) return true;
    return inside_.back() == Place::entry && !key_is("dtype") && !key_is("shape") && !key_is("data_offsets");
  }

  // A value of a kind that is never wanted: fine where it is skipped.
  bool other(const char* kind) const {
    if (skips()) return true;
    const Place place = here();
    const char* expected = place == Place::shape || place == Place::offsets ? "whole numbers from 0"
                           : place == Place::file || place == Place::header ? "an object"
                           : place == Place::metadata || key_is("dtype")    ? "a string"
                                                                            : "an array of whole numbers";
    fail("{}: expected {}, found {}", what(), expected, kind);
  }

  void open(Place place) {
    if (inside_.size() == kMaxDepth) fail("the header nests deeper than {} levels", kMaxDepth);
    inside_.push_back(place), keys_.emplace_back(), seen_.emplace_back();
  }

  void close() { inside_.pop_back(), keys_.pop_back(), seen_.pop_back(); }

  static constexpr size_t kMaxDepth = 127;  // the reference's parser gives up at 128

  const std::string& file_;
  SafetensorsHeader header_;
  // One of each per open object or array: its place, the last key read in it, all keys read in it.
  std::vector<Place> inside_;
  std::vector<std::string> keys_;
  std::vector<std::unordered_set<std::string>> seen_;
  std::vector<int64_t> numbers_;  // of the array being read
  bool has_shape_ = false, has_offsets_ = false;
};

// That each entry has the bytes that it needs, and that they cover [0, data_bytes) without hole and overlap. Sorts them.
void check_layout(std::vector<SafetensorsEntry>& entries, int64_t data_bytes, const std::string& file) {
  const auto fail = [&file]<typename... Args>(fmt::format_string<Args...> text, Args&&... args) {
    throw DataError(fmt::format("{}: {}; the file is damaged or was written wrongly: fetch or write it again", file,
                                fmt::format(text, std::forward<Args>(args)...)));
  };
  // Empty tensors come before the one that begins at the same place.
  std::stable_sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t covered = 0;
  std::string before = "the header";
  for (const SafetensorsEntry& entry : entries) {
    const std::string name = fmt::format("tensor '{}'", shown(entry.name));
    if (entry.begin > entry.end) fail("{} begins at {}, after its end at {}", name, entry.begin, entry.end);
    const std::optional<int64_t> bytes = bytes_of(entry);
    if (!bytes) fail("{}: shape {} of {} is beyond 64 bits", name, shown(entry.shape), entry.dtype);
    if (entry.bytes() != *bytes)
      fail("{}: shape {} of {} takes {} bytes, its data_offsets [{},{}] hold {}", name, shown(entry.shape), entry.dtype,
           *bytes, entry.begin, entry.end, entry.bytes());
    if (entry.begin != covered)
      fail("{} begins at {} but {} ends at {}: {}", name, entry.begin, before, covered,
           entry.begin > covered ? "bytes between them belong to no tensor" : "they overlap");
    if (entry.end > data_bytes) fail("{} ends at {}, but only {} bytes follow the header", name, entry.end, data_bytes);
    covered = entry.end, before = name;
  }
  if (covered != data_bytes)
    fail("{} ends at {}, but {} bytes follow the header: the last {} belong to no tensor", before, covered, data_bytes,
         data_bytes - covered);
}

}  // namespace

int64_t SafetensorsEntry::elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

int64_t safetensors_element_bytes(std::string_view dtype) {
  static constexpr std::pair<std::string_view, int64_t> types[] = {
      {"BOOL", 1},        {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1},
      {"F8_E5M2FNUZ", 1}, {"U16", 2}, {"I16", 2}, {"F16", 2},     {"BF16", 2},    {"U32", 4},     {"I32", 4},
      {"F32", 4},         {"U64", 8}, {"I64", 8}, {"F64", 8},     {"C64", 8},
  };
  for (const auto& [name, bytes] : types)
    if (name == dtype) return bytes;
  return 0;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_bytes, const std::string& name) {
  const auto fail = [&name](const std::string& what) {
    throw DataError(fmt::format("{}: {}; is it a safetensors file? If so, fetch or write it again", name, what));
  };
  if (static_cast<int64_t>(text.size()) > kSafetensorsMaxHeader)
    fail(fmt::format("its header of {} bytes is longer than {}", text.size(), kSafetensorsMaxHeader));
  if (!text.starts_with('{')) fail("its header does not begin with '{'");
  if (const size_t zero = text.find('\0'); zero != text.npos)
    fail(fmt::format("its header holds a zero byte, its byte {}", zero));
  text = text.substr(0, text.find_last_not_of(' ') + 1);
  if (!text.ends_with('}')) fail("its header does not end with '}' and spaces");

  HeaderEvents events(name);
  json::sax_parse(text.begin(), text.end(), &events);
  SafetensorsHeader header = events.take();
  check_layout(header.entries, data_bytes, name);
  return header;
}

std::string make_safetensors_header(std::vector<SafetensorsEntry>& entries, const SafetensorsMetadata& metadata,
                                    const std::string& name) {
  const auto quoted = [&name](const std::string& text) {
    try {
      return json(text).dump();
    } catch (const json::exception&) {
      throw Error(fmt::format("{}: '{}' is not UTF-8, so it cannot be a name or metadata", name, shown(text)));
    }
  };
  std::string text = "{";
  const char* comma = "";
  if (!metadata.empty()) {
    text += fmt::format("\"{}\":{{", kMetadataKey);
    for (const auto& [key, value] : metadata) {
      text += fmt::format("{}{}:{}", comma, quoted(key), quoted(value));
      comma = ",";
    }
    text += '}';
  }
  std::unordered_set<std::string_view> names = {kMetadataKey};
  int64_t begin = 0;
  for (SafetensorsEntry& entry : entries) {
    CHECK(names.insert(entry.name).second, "{}: a second tensor '{}'; names must differ", name, shown(entry.name));
    CHECK(safetensors_element_bytes(entry.dtype) > 0, "{}: tensor '{}': '{}' is no type of the format", name,
          shown(entry.name), entry.dtype);
    CHECK(std::all_of(entry.shape.begin(), entry.shape.end(), [](int64_t size) { return size >= 0; }),
          "{}: tensor '{}' has the shape {}; sizes are from 0", name, shown(entry.name), shown(entry.shape));
    const std::optional<int64_t> bytes = bytes_of(entry);
    entry.begin = begin;
    CHECK(bytes && !__builtin_add_overflow(begin, *bytes, &entry.end), "{}: tensor '{}': shape {} is beyond 64 bits",
          name, shown(entry.name), shown(entry.shape));
    begin = entry.end;
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", comma, quoted(entry.name),
                        entry.dtype, fmt::join(entry.shape, ","), entry.begin, entry.end);
    comma = ",";
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  if (static_cast<int64_t>(text.size()) > kSafetensorsMaxHeader)
    throw DataError(
        fmt::format("{}: the header of {} tensors would have {} bytes, the format allows {}; write several files", name,
                    entries.size(), text.size(), kSafetensorsMaxHeader));
  const uint64_t size = text.size();  // little-endian, as safetensors.cpp asserts
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + text;
}

}  // namespace trencadis
