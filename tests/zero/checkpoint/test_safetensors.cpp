// zero/checkpoint, safetensors: which headers are taken and which are refused, byte by byte from the specification; files
// written and read back; a file of the reference writer.
#include <unistd.h>

#include <cstring>

#include "models/temp_folder.h"
#include "zero/checkpoint/safetensors.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

// One entry of a header, with fields as they stand in JSON.
std::string field(const std::string& name, const std::string& shape = "[1]", const std::string& offsets = "[0,4]",
                  const std::string& dtype = "\"F32\"", const std::string& more = "") {
  return fmt::format(R"("{}":{{"dtype":{},"shape":{},"data_offsets":{}{}}})", name, dtype, shape, offsets, more);
}

std::string object(const std::string& fields) { return "{" + fields + "}"; }

std::string as_bytes(uint64_t number) { return std::string(reinterpret_cast<const char*>(&number), 8); }

// The text of the DataError, "" if the header is taken.
std::string header_error(const std::string& json, int64_t data_bytes) {
  return error_of<DataError>([&] { parse_safetensors_header(json, data_bytes, "a.safetensors"); });
}

std::string file_error(const std::string& bytes) {
  const TempFolder folder;
  return error_of<DataError>([&] { SafetensorsReader(folder.write("a.safetensors", bytes)); });
}

SafetensorsEntry tensor(std::string name, std::string dtype, std::vector<int64_t> shape) {
  return {std::move(name), std::move(dtype), std::move(shape), 0, 0};
}

std::string bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// CRC-32C, bit by bit as RFC 3720 defines it.
uint32_t crc32c(const std::string& bytes) {
  uint32_t crc = 0xffffffffu;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) ? 0x82F63B78u : 0u);
  }
  return ~crc;
}

template <typename Number>
std::vector<Number> read_all(const SafetensorsReader& reader, const std::string& name, const char* dtype) {
  const SafetensorsEntry* entry = reader.find(name);
  REQUIRE(entry != nullptr);
  CHECK(entry->dtype == dtype);
  std::vector<Number> numbers(static_cast<size_t>(entry->elements()));
  REQUIRE(entry->bytes() == static_cast<int64_t>(numbers.size() * sizeof(Number)));
  reader.read(*entry, 0, entry->bytes(), numbers.data());
  return numbers;
}

}  // namespace

TEST_CASE("safetensors header: what is taken") {
  const std::string f32 = field("a");
  struct Case {
    const char* what;
    std::string json;
    int64_t data_bytes;
    size_t entries;
  };
  const Case cases[] = {
      {"no tensor", "{}", 0, 0},
      {"only metadata", R"({"__metadata__":{"format":"pt"}})", 0, 0},
      {"empty metadata", object(R"("__metadata__":{},)" + f32), 4, 1},
      {"metadata behind", object(f32 + R"(,"__metadata__":{"x":"y"})"), 4, 1},
      {"one tensor", object(f32), 4, 1},
      {"spaces behind", object(f32) + "       ", 4, 1},
      {"white space inside", "{ \n\t\r" + f32 + "\n}", 4, 1},
      {"scalar", object(field("a", "[]")), 4, 1},
      {"a size of 0", object(field("a", "[3,0]", "[0,0]")), 0, 1},
      {"a 0 in front of large sizes", object(field("a", "[0,4294967296,4294967296]", "[0,0]")), 0, 1},
      {"any order", object(field("b", "[2]", "[4,12]") + "," + f32), 12, 2},
      {"empty ones at each end of another",
       object(field("z", "[0]", "[4,4]") + "," + f32 + "," + field("y", "[0]", "[0,0]")), 4, 3},
      {"fields in any order", R"({"a":{"data_offsets":[0,4],"shape":[1],"dtype":"F32"}})", 4, 1},
      {"unknown fields",
       object(field("a", "[1]", "[0,4]", "\"F32\"", R"(,"x":{"y":[1,-2,3.5,null,true,"z",{}]},"n":1e3)")), 4, 1},
      {"the empty name", object(field("")), 4, 1},
      {"UTF-8 names", object(field("größe…😀")), 4, 1},
      {"escaped names", object(field(R"(\ud83d\ude00\u0000\n)")), 4, 1},
      {"127 levels, with an unknown field",
       object(field("a", "[1]", "[0,4]", "\"F32\"", ",\"x\":" + std::string(125, '[') + std::string(125, ']'))), 4, 1},
      {"the longest header", "{}" + std::string(100'000'000 - 2, ' '), 0, 0},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    CHECK(header_error(c.json, c.data_bytes) == "");
    CHECK(parse_safetensors_header(c.json, c.data_bytes, "a").entries.size() == c.entries);
  }
}

TEST_CASE("safetensors header: what it says") {
  const SafetensorsHeader header = parse_safetensors_header(
      object(field("b", "[2,3]", "[8,20]", "\"BF16\"") + R"(,"__metadata__":{"format":"pt","k":"\u00e9"},)" +
             field("a", "[]", "[0,8]", "\"I64\"")),
      20, "a.safetensors");
  REQUIRE(header.entries.size() == 2);
  CHECK(header.entries[0].name == "a");
  CHECK(header.entries[0].dtype == "I64");
  CHECK(header.entries[0].shape.empty());
  CHECK(header.entries[0].elements() == 1);
  CHECK(header.entries[0].bytes() == 8);
  CHECK(header.entries[1].name == "b");
  CHECK(header.entries[1].shape == std::vector<int64_t>{2, 3});
  CHECK(header.entries[1].begin == 8);
  CHECK(header.entries[1].end == 20);
  CHECK(header.entries[1].elements() == 6);
  CHECK(header.metadata == SafetensorsMetadata{{"format", "pt"}, {"k", "é"}});
}

TEST_CASE("safetensors header: sizes of the types") {
  const std::vector<std::pair<int64_t, std::vector<std::string>>> types = {
      {1, {"BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}},
      {2, {"U16", "I16", "F16", "BF16"}},
      {4, {"U32", "I32", "F32"}},
      {8, {"U64", "I64", "F64", "C64"}},
      {0, {"", "F31", "f32", "F4", "F6_E2M3", "C128"}}};
  for (const auto& [bytes, names] : types)
    for (const std::string& name : names) {
      CAPTURE(name);
      CHECK(safetensors_element_bytes(name) == bytes);
      const std::string json = object(field("a", "[3]", fmt::format("[0,{}]", 3 * bytes), "\"" + name + "\""));
      CHECK((header_error(json, 3 * bytes) == "") == (bytes > 0));
    }
}

TEST_CASE("safetensors header: what is refused, and what the error says") {
  const std::string f32 = field("a");
  const auto with = [](const std::string& shape, const std::string& offsets = "[0,4]") {
    return object(field("a", shape, offsets));
  };
  const auto typed = [](const std::string& dtype) { return object(field("a", "[1]", "[0,4]", dtype)); };
  const auto more = [](const std::string& text) { return object(field("a", "[1]", "[0,4]", "\"F32\"", text)); };
  const auto metadata = [](const std::string& value) { return object("\"__metadata__\":" + value); };
  struct Case {
    std::string json;
    int64_t data_bytes;
    const char* error;
  };
  const Case cases[] = {
      // Layout.
      {object(f32 + "," + field("b", "[1]", "[8,12]")), 12,
       "tensor 'b' begins at 8 but tensor 'a' ends at 4: bytes between"},
      {with("[1]", "[4,8]"), 8, "tensor 'a' begins at 4 but the header ends at 0: bytes between"},
      {object(f32 + "," + field("b", "[1]", "[2,6]")), 6,
       "tensor 'b' begins at 2 but tensor 'a' ends at 4: they overlap"},
      {object(f32 + "," + field("b")), 4, "they overlap"},
      {object(f32 + "," + field("b", "[0]", "[2,2]")), 4, "they overlap"},
      {object(f32), 5, "tensor 'a' ends at 4, but 5 bytes follow the header: the last 1"},
      {"{}", 1, "the last 1 belong to no tensor"},
      {object(f32), 3, "tensor 'a' ends at 4, but only 3 bytes follow"},
      {with("[2]", "[0,8]"), 4, "ends at 8, but only 4"},
      {with("[2]"), 4, "tensor 'a': shape [2] of F32 takes 8 bytes, its data_offsets [0,4] hold 4"},
      {with("[1]", "[0,8]"), 8, "takes 4 bytes, its data_offsets [0,8] hold 8"},
      {with("[1]", "[4,0]"), 4, "begins at 4, after its end at 0"},
      // Overflow: of the product, of the product times 4 bytes, though a 0 follows, and of one number.
      {with("[4294967296,4294967296]", "[0,0]"), 0, "shape [4294967296,4294967296] of F32 is beyond 64 bits"},
      {with("[4611686018427387904]", "[0,0]"), 0, "is beyond 64 bits"},
      {with("[4294967296,4294967296,0]", "[0,0]"), 0, "is beyond 64 bits"},
      {with("[0,9223372036854775808]", "[0,0]"), 0, "shape: 9223372036854775808 is beyond 64 bits"},
      {with("[0,18446744073709551616]", "[0,0]"), 0, "beyond 64 bits"},
      {with("[1]", "[18446744073709551612,0]"), 4, "beyond 64 bits"},
      // Numbers.
      {with("[-1]"), 4, "tensor 'a': shape: expected whole numbers from 0, found a negative number"},
      {with("[-0]", "[0,0]"), 0, "found a negative number"},
      {with("[1.0]"), 4, "found a number with fraction"},
      {with("[1e0]"), 4, "found a number with fraction or exponent"},
      {with("[1]", "[0,4.5]"), 4, "data_offsets: expected whole numbers from 0, found a number with fraction"},
      {with("[1]", "[-0,4]"), 4, "found a negative number"},
      {with("[01]"), 4, "not valid JSON"},
      // Kinds of value.
      {with("[1]", "[4]"), 4, "data_offsets: expected begin and end, found 1 numbers"},
      {with("[1]", "[0,4,4]"), 4, "data_offsets: expected begin and end, found 3 numbers"},
      {with("[1]", "{}"), 4, "data_offsets: expected an array of whole numbers, found an object"},
      {with("\"1\""), 4, "shape: expected an array of whole numbers, found a string"},
      {with("1"), 4, "shape: expected an array of whole numbers, found a number"},
      {with("null"), 4, "found null"},
      {with("[[1]]"), 4, "shape: expected whole numbers from 0, found an array"},
      {with("[\"1\"]"), 4, "found a string"},
      {with("[true]"), 4, "found a truth value"},
      {with("[{}]"), 4, "found an object"},
      {typed("\"F31\""), 4, "tensor 'a': dtype: 'F31' is no type"},
      {typed("0"), 4, "dtype: expected a string, found a number"},
      {typed("{\"F32\":null}"), 4, "dtype: expected a string, found an object"},
      {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "tensor 'a' has no dtype"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "tensor 'a' has no shape"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "tensor 'a' has no data_offsets"},
      {R"({"a":1})", 0, "tensor 'a': expected an object, found a number"},
      {R"({"a":null})", 0, "found null"},
      {R"({"a":["F32",[1],[0,4]]})", 4, "tensor 'a': expected an object, found an array"},
      {metadata(R"({"a":1})"), 0, "__metadata__ 'a': expected a string, found a number"},
      {metadata(R"({"a":null})"), 0, "expected a string, found null"},
      {metadata(R"({"a":{}})"), 0, "expected a string, found an object"},
      {metadata(R"({"a":["x"]})"), 0, "expected a string, found an array"},
      {metadata("null"), 0, "__metadata__: expected an object, found null"},
      {metadata("[]"), 0, "__metadata__: expected an object, found an array"},
      // Keys that occur twice, spelled differently too.
      {object(f32 + "," + f32), 4, "the key 'a' occurs twice in the header"},
      {object(f32 + "," + field("\\u0061", "[1]", "[4,8]")), 8, "the key 'a' occurs twice in the header"},
      {metadata("{},\"__metadata__\":{}"), 0, "the key '__metadata__' occurs twice"},
      {metadata(R"({"a":"1","a":"1"})"), 0, "the key 'a' occurs twice in __metadata__"},
      {more(R"(,"dtype":"F32")"), 4, "the key 'dtype' occurs twice in tensor 'a'"},
      {more(R"(,"shape":[1])"), 4, "the key 'shape' occurs twice"},
      {more(R"(,"x":1,"x":1)"), 4, "the key 'x' occurs twice"},
      // Before and behind the JSON.
      {"", 0, "does not begin with '{'"},
      {" {}", 0, "does not begin with '{'"},
      {"\xEF\xBB\xBF{}", 0, "does not begin with '{'"},
      {"[]", 0, "does not begin with '{'"},
      {"{}\n", 0, "does not end with '}' and spaces"},
      {"{}\t", 0, "does not end with '}' and spaces"},
      {"{}x", 0, "does not end with '}' and spaces"},
      {std::string("{}\0", 3), 0, "holds a zero byte, its byte 2"},
      {std::string("{}\0}", 4), 0, "holds a zero byte"},
      {"{}{}", 0, "not valid JSON"},
      {"{} {}", 0, "not valid JSON"},
      // JSON itself.
      {object(f32).substr(0, 30), 4, "does not end with"},
      {object(f32 + ","), 4, "not valid JSON"},
      {"{/**/}", 0, "not valid JSON"},
      {"{'a':1}", 0, "not valid JSON"},
      {"{\xC2\xA0}", 0, "not valid JSON"},
      {more(",\"x\":1e999"), 4, "not valid JSON"},
      {more(",\"x\":NaN"), 4, "not valid JSON"},
      {object(field("\x01")), 4, "not valid JSON at its byte 3"},
      // UTF-8: a lone byte, a longer form than needed, a surrogate, beyond the last character; a lone surrogate escaped.
      {object(field("\xFF")), 4, "not valid JSON at its byte 3"},
      {object(field("\xC0\x80")), 4, "not valid JSON"},
      {object(field("\xED\xA0\x80")), 4, "not valid JSON"},
      {object(field("\xF4\x90\x80\x80")), 4, "not valid JSON"},
      {object(field("\\ud800")), 4, "not valid JSON"},
      {more(",\"x\":\"\xFF\""), 4, "not valid JSON"},
      {more(",\"x\":" + std::string(126, '[') + std::string(126, ']')), 4, "nests deeper than 127 levels"},
      {"{}" + std::string(100'000'001 - 2, ' '), 0, "its header of 100000001 bytes is longer than 100000000"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.json.substr(0, 200));
    const std::string error = header_error(c.json, c.data_bytes);
    CHECK(contains(error, c.error));
    CHECK(error.starts_with("a.safetensors: "));
  }
}

TEST_CASE("safetensors header: an error shows no control character of the file, and not all of a long name") {
  const std::string error = header_error(object(field("a\\u001b[31m\\n" + std::string(5000, 'x'), "[2]")), 4);
  CHECK(contains(error, "tensor 'a?[31m?xxx"));
  CHECK(error.size() < 500);
}

TEST_CASE("safetensors file: too short, too long a header, no file") {
  CHECK(contains(file_error(""), "has 0 bytes, a safetensors file at least 8"));
  CHECK(contains(file_error("1234567"), "has 7 bytes"));
  CHECK(contains(file_error(as_bytes(0)), "does not begin with '{'"));
  CHECK(contains(file_error(as_bytes(3) + "{}"), "should have a header of 3 bytes but ends after 2"));
  CHECK(
      contains(file_error(as_bytes(100'000'001) + "{}"), "100000001 as the length of its header, more than 100000000"));
  CHECK(contains(file_error(as_bytes(100'000'000) + "{}"), "should have a header of 100000000 bytes"));
  for (const uint64_t length : {uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7})
    CHECK(contains(file_error(as_bytes(length) + "{}"), "as the length of its header, more than"));
  CHECK(file_error(as_bytes(2) + "{}") == "");
  CHECK(contains(file_error(as_bytes(2) + "{}x"), "the last 1 belong to no tensor"));

  const TempFolder folder;
  const auto open_error = [](const std::string& path) { return error_of<DataError>([&] { SafetensorsReader{path}; }); };
  CHECK(contains(open_error(folder.path("none")), "none: cannot be opened: No such file or directory; check that"));
  CHECK(contains(open_error(folder.path("")), "is not a regular file"));
  CHECK(contains(open_error("/dev/null"), "is not a regular file"));
}

TEST_CASE("safetensors file: a header of any length, and parts of tensors") {
  const TempFolder folder;
  const std::string json = object(field("a", "[3]", "[0,3]", "\"U8\"") + "," + field("b", "[2]", "[3,5]", "\"U8\""));
  REQUIRE(json.size() % 8 != 0);
  SafetensorsReader first(folder.write("a.safetensors", as_bytes(json.size()) + json + "vwxyz"));
  SafetensorsReader reader = std::move(first);
  CHECK(reader.path() == folder.path("a.safetensors"));
  REQUIRE(reader.find("b") != nullptr);
  CHECK(reader.find("c") == nullptr);
  const SafetensorsEntry a = *reader.find("a"), b = *reader.find("b");
  std::string text(2, '?');
  reader.read(a, 1, 2, text.data());
  CHECK(text == "wx");
  reader.read(b, 0, 2, text.data());
  CHECK(text == "yz");
  reader.read(b, 2, 0, text.data());
  CHECK(text == "yz");
  CHECK(contains(error_of<Error>([&] { reader.read(a, 2, 2, text.data()); }), "2 bytes from 2 of tensor 'a'"));
  CHECK_THROWS_AS(reader.read(a, -1, 1, text.data()), Error);
  CHECK_THROWS_AS(reader.read(a, 1, -1, text.data()), Error);
  SafetensorsEntry beyond = b;
  beyond.end = 6;
  CHECK(contains(error_of<Error>([&] { reader.read(beyond, 0, 1, text.data()); }), "is not of this file"));

  REQUIRE(truncate(reader.path().c_str(), static_cast<off_t>(8 + json.size() + 4)) == 0);
  reader.read(b, 0, 1, text.data());
  CHECK(contains(error_of<DataError>([&] { reader.read(b, 0, 2, text.data()); }), "1 bytes early: it was cut short"));
}

TEST_CASE("safetensors writer: what it writes is read back, whatever the pieces") {
  const TempFolder folder;
  constexpr int64_t large = (5 << 20) + 3;  // beyond the buffer, and no multiple of anything
  std::string data(7 + large + 12, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 2654435761u >> 13);
  const std::vector<SafetensorsEntry> entries = {tensor("small", "U8", {7}), tensor("none", "F32", {0, 5}),
                                                 tensor("large", "I8", {large}), tensor("h.0 \"é\"", "F32", {3, 1})};
  const SafetensorsMetadata metadata = {{"format", "pt"}, {"", "\n"}};
  std::string file;
  for (const int64_t piece : {int64_t{1} << 40, int64_t{1} << 20, int64_t{(1 << 20) + 1}, int64_t{100'003}}) {
    CAPTURE(piece);
    const std::string path = folder.write("a.safetensors", std::string(9 << 20, 'x'));  // overwritten
    SafetensorsWriter writer(path, entries, metadata);
    writer.append(nullptr, 0);
    for (int64_t begin = 0; begin < static_cast<int64_t>(data.size()); begin += piece)
      writer.append(data.data() + begin, std::min(piece, static_cast<int64_t>(data.size()) - begin));
    const SafetensorsWriter::Written written = writer.finish();
    const std::string bytes = bytes_of_file(path);
    CHECK(written.bytes == static_cast<int64_t>(bytes.size()));
    CHECK(written.crc32c == crc32c(bytes));
    if (file.empty()) file = bytes;
    CHECK((file == bytes));

    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), 8);
    CHECK(header % 8 == 0);
    CHECK(8 + header + data.size() == bytes.size());
    CHECK((bytes.substr(8 + header) == data));
    const SafetensorsReader reader(path);
    CHECK(reader.metadata() == metadata);
    REQUIRE(reader.entries().size() == entries.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      CHECK(reader.entries()[i].name == entries[i].name);
      CHECK(reader.entries()[i].dtype == entries[i].dtype);
      CHECK(reader.entries()[i].shape == entries[i].shape);
    }
    std::string part(1000, '?');
    reader.read(*reader.find("large"), 3'000'000, 1000, part.data());
    CHECK((part == data.substr(7 + 3'000'000, 1000)));
  }
}

TEST_CASE("safetensors writer: the header, byte by byte") {
  std::vector<SafetensorsEntry> entries = {tensor("b", "F32", {2, 3}), tensor("a", "BF16", {})};
  const std::string header = make_safetensors_header(entries, {{"format", "pt"}}, "a");
  const std::string json = R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                           R"("a":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}})";
  CHECK(json.size() == 143);
  CHECK(header == as_bytes(144) + json + " ");
  CHECK(entries[1].begin == 24);
  CHECK(entries[1].end == 26);
  // As few spaces as it takes: none where the JSON has a multiple of 8 already.
  for (size_t letters = 1; letters <= 8; ++letters) {
    std::vector<SafetensorsEntry> one = {tensor(std::string(letters, 'x'), "U8", {1})};
    const std::string text = make_safetensors_header(one, {}, "a");
    CHECK(text.size() == 8 + (text.rfind('}') - 8 + 1 + 7) / 8 * 8);
  }
  std::vector<SafetensorsEntry> none;
  CHECK(make_safetensors_header(none, {}, "a") == as_bytes(8) + "{}      ");
}

TEST_CASE("safetensors writer: entries that no reader would take") {
  const auto error = [](std::vector<SafetensorsEntry> entries, const SafetensorsMetadata& metadata = {}) {
    return error_of<Error>([&] { make_safetensors_header(entries, metadata, "a.safetensors"); });
  };
  CHECK(contains(error({tensor("a", "F32", {1}), tensor("a", "F32", {1})}), "a second tensor 'a'"));
  CHECK(contains(error({tensor("__metadata__", "F32", {1})}), "a second tensor '__metadata__'"));
  CHECK(contains(error({tensor("a", "F31", {1})}), "'F31' is no type"));
  CHECK(contains(error({tensor("a", "F32", {2, -1})}), "has the shape [2,-1]"));
  CHECK(contains(error({tensor("a", "F32", {int64_t{1} << 61})}), "beyond 64 bits"));
  CHECK(contains(error({tensor("a", "U8", {INT64_MAX}), tensor("b", "U8", {1})}), "tensor 'b': shape [1]"));
  CHECK(contains(error({tensor("\xFF", "F32", {1})}), "is not UTF-8"));
  CHECK(contains(error({}, {{"a", "\xED\xA0\x80"}}), "is not UTF-8"));
  CHECK(contains(error({tensor(std::string(100'000'000, 'x'), "F32", {1})}), "write several files"));
}

TEST_CASE("safetensors writer: bytes that are too many or missing, disks that are full") {
  const TempFolder folder;
  const std::string path = folder.path("a.safetensors"), data(3 << 20, 'x');
  const auto of = [&data](int64_t bytes) {
    REQUIRE(bytes <= static_cast<int64_t>(data.size()));
    return std::vector{tensor("a", "U8", {bytes})};
  };
  {
    SafetensorsWriter writer(path, of(4), {});
    CHECK(
        contains(error_of<Error>([&] { writer.append(data.data(), 5); }), "5 bytes are appended, the tensors have 4"));
    writer.append(data.data(), 3);
    CHECK(contains(error_of<Error>([&] { writer.finish(); }), "1 bytes of the tensors were never appended"));
  }
  CHECK_THROWS_AS(SafetensorsReader{path}, DataError);  // left unfinished

  const auto open_error = [&](const std::string& where) {
    return error_of<DataError>([&] { SafetensorsWriter(where, of(1), {}); });
  };
  CHECK(
      contains(open_error(folder.path("none/a")), "none/a: cannot be written: No such file or directory; check that"));
  CHECK(contains(open_error(folder.path("")), "Is a directory"));
  CHECK(contains(open_error(path + "/a"), "Not a directory"));
  if (geteuid() != 0) {
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
    CHECK(contains(open_error(path), "Permission denied; check the permissions"));
  }

  const std::string full = "No space left on device; make room on that disk or choose another folder";
  SafetensorsWriter small("/dev/full", of(4), {});  // stays in the buffer until the end
  small.append(data.data(), 4);
  CHECK(contains(error_of<DataError>([&] { small.finish(); }), "/dev/full: cannot be written beyond 0 of "));
  SafetensorsWriter large("/dev/full", of(3 << 20), {});
  CHECK(contains(error_of<DataError>([&] { large.append(data.data(), 3 << 20); }), full));
}

TEST_CASE("safetensors: a file of the reference package, read, and written the same to the byte") {
  const std::string golden = TRENCADIS_GOLDEN_DIR "/small.safetensors";
  const SafetensorsReader reader(golden);
  CHECK(reader.metadata() == SafetensorsMetadata{{"format", "pt"}});
  CHECK(reader.entries().size() == 11);
  CHECK(read_all<float>(reader, "h.0.ln_1.weight", "F32") == std::vector<float>{-1, -.5f, 0, .5f, 1, 1.5f, 2});
  const std::vector<float> wte = read_all<float>(reader, "wte.weight", "F32");
  CHECK(reader.find("wte.weight")->shape == std::vector<int64_t>{5, 3});
  CHECK(wte.back() == 6);
  CHECK(read_all<float>(reader, "scalar", "F32") == std::vector<float>{.25f});
  CHECK(read_all<float>(reader, "empty", "F32").empty());
  CHECK(reader.find("empty")->shape == std::vector<int64_t>{0, 4});
  CHECK(read_all<double>(reader, "double", "F64") == std::vector<double>{-1, -.5});
  CHECK(reader.find("double")->shape == std::vector<int64_t>{1, 2, 1});
  CHECK(read_all<int64_t>(reader, "long", "I64") == std::vector<int64_t>{0, 3, 6});
  CHECK(read_all<int32_t>(reader, "größe \"µ\"\n", "I32") == std::vector<int32_t>{0, 3});
  CHECK(read_all<uint8_t>(reader, "byte", "U8") == std::vector<uint8_t>{0, 3, 6});
  CHECK(read_all<uint8_t>(reader, "mask", "BOOL") == std::vector<uint8_t>{1, 0, 0, 1});
  // -1, -0.5, 0, 0.5, 1 in IEEE half; -1, -0.5, 0 as upper halves of floats.
  CHECK(read_all<uint16_t>(reader, "half", "F16") == std::vector<uint16_t>{0xBC00, 0xB800, 0, 0x3800, 0x3C00});
  CHECK(read_all<uint16_t>(reader, "brain", "BF16") == std::vector<uint16_t>{0xBF80, 0xBF00, 0});

  const TempFolder folder;
  SafetensorsWriter writer(folder.path("copy"), reader.entries(), reader.metadata());
  for (const SafetensorsEntry& entry : reader.entries()) {
    std::string bytes(static_cast<size_t>(entry.bytes()), '\0');
    reader.read(entry, 0, entry.bytes(), bytes.data());
    writer.append(bytes.data(), entry.bytes());
  }
  writer.finish();
  CHECK((bytes_of_file(folder.path("copy")) == bytes_of_file(golden)));
}
