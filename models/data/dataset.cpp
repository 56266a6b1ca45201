#include "models/data/dataset.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime/check.h"

namespace trencadis {

namespace fs = std::filesystem;

namespace {

// Set by CMake: where the sources were when this was built. A binary that was moved elsewhere finds none, and says so.
constexpr const char* kSourceFolder = TRENCADIS_SOURCE_DIR;
constexpr const char* kFetchedText = "data/shakespeare.txt";
constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool is_source(const fs::path& path) {
  static constexpr std::array extensions = {".h", ".cpp", ".md", ".py", ".sh"};
  return std::find(extensions.begin(), extensions.end(), path.extension().string()) != extensions.end();
}

bool is_skipped_folder(const fs::path& folder, bool top) {
  const std::string name = folder.filename().string();
  return name.starts_with('.') || name == "__pycache__" ||
         (top && (name.starts_with("build") || name == "data" || name == "out" || name == "shared"));
}

// Length of the valid UTF-8 sequence of a printable character at the start of `bytes`, else 0.
size_t printable_length(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return (lead >= 0x20 && lead != 0x7F) || lead == '\n' || lead == '\t' ? 1 : 0;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || bytes.size() < length) return 0;
  uint32_t code = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr std::array<uint32_t, 5> least = {0, 0, 0xA0, 0x800, 0x10000};  // 0x80 to 0x9F steer a terminal
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < least[length] || code > 0x10FFFF || surrogate ? 0 : length;
}

std::string millions(int64_t tokens) {
  return tokens >= 1'000'000 ? fmt::format("{:.2f} M", static_cast<double>(tokens) / 1e6) : fmt::format("{}", tokens);
}

struct Source {
  std::shared_ptr<const TokenFiles> files;
  std::string reason;  // why it was chosen, if the user did not
};

Source default_source() {
  for (const fs::path& folder : {fs::path("."), fs::path(kSourceFolder)}) {
    const fs::path path = (folder / kFetchedText).lexically_normal();
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) return {TokenFiles::open(path.string()), " (what quickstart.sh fetched)"};
  }
  std::string text = read_own_sources(kSourceFolder);
  if (text.empty())
    throw DataError(
        fmt::format("no training data: there is neither {} here nor a source folder at {}; give --train-data FILE",
                    kFetchedText, kSourceFolder));
  return {TokenFiles::from_text("this project's own sources", std::move(text)),
          " (no --train-data, and quickstart.sh has fetched none)"};
}

// Every token of a vocabulary must fit.
PlainTokens plain_tokens(int64_t vocab_size, int64_t token_bytes) {
  const bool needs_four = vocab_size > int64_t{1} << 16;
  if (token_bytes == 2 && needs_four)
    throw UsageError(fmt::format(
        "--token-bytes 2 and a vocabulary of {}: 16 bits hold tokens up to 65535; write the tokens as uint32 and give "
        "--token-bytes 4, or give a --vocab-size of at most 65536",
        vocab_size));
  if (token_bytes > 0) return {token_bytes, fmt::format("--token-bytes {}", token_bytes)};
  if (needs_four)
    return {4, fmt::format("a vocabulary of {}, which 16 bits do not hold", vocab_size), /*certain=*/false};
  return {};
}

}  // namespace

std::string read_own_sources(const std::string& root) {
  std::error_code ignored;
  std::vector<std::string> paths;
  for (auto entry = fs::recursive_directory_iterator(root, fs::directory_options::skip_permission_denied, ignored);
       entry != fs::recursive_directory_iterator(); entry.increment(ignored)) {
    if (entry->is_directory(ignored)) {
      if (is_skipped_folder(entry->path(), entry.depth() == 0)) entry.disable_recursion_pending();
    } else if (is_source(entry->path()) && entry->is_regular_file(ignored)) {
      paths.push_back(entry->path().lexically_relative(root).generic_string());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (const std::string& path : paths) {
    std::ifstream file(fs::path(root) / path, std::ios::binary);
    text.append(std::istreambuf_iterator<char>(file), {});
  }
  return text;
}

Dataset open_dataset(const std::string& train, const std::string& val, int64_t vocab_size, int64_t token_bytes) {
  const PlainTokens plain = plain_tokens(vocab_size, token_bytes);
  const Source source = train.empty() ? default_source() : Source{TokenFiles::open(train, plain), ""};
  const TokenFiles& files = *source.files;
  Dataset data;
  data.text = files.is_text();
  data.vocab_size = vocab_size > 0 ? vocab_size : files.default_vocab_size();
  files.check_start(data.vocab_size);
  if (val.empty()) {
    const int64_t cut = files.size() - files.size() / 10;
    data.train = {source.files, 0, cut, "training data " + files.name()};
    data.val = {source.files, cut, files.size(), "validation data, the last tenth of " + files.name()};
  } else {
    const std::shared_ptr<const TokenFiles> val_files = TokenFiles::open(val, plain);
    if (val_files->is_text() != data.text)
      throw DataError(
          fmt::format("{} and {}: one is text, the other tokens; --train-data and --val-data must be of one kind",
                      files.name(), val_files->name()));
    val_files->check_start(data.vocab_size);
    data.train = {source.files, 0, files.size(), "training data " + files.name()};
    data.val = {val_files, 0, val_files->size(), "validation data " + val_files->name()};
  }
  data.message =
      fmt::format("data: {}{}: {} {} to train on, {} to validate{}, vocabulary {}", files.name(), source.reason,
                  millions(data.train.size()), data.text ? "bytes" : "tokens", millions(data.val.size()),
                  val.empty() ? " (the last tenth)" : " from " + data.val.files->name(), data.vocab_size);
  return data;
}

std::string decode(std::span<const int32_t> tokens, bool text) {
  std::string out;
  if (!text) {
    for (const int32_t token : tokens) out += fmt::format("{}{}", out.empty() ? "" : " ", token);
    return out;
  }
  std::string bytes;
  for (const int32_t token : tokens) bytes += token >= 0 && token < 256 ? static_cast<char>(token) : '\0';
  for (size_t i = 0; i < bytes.size();) {
    const size_t length = printable_length(std::string_view(bytes).substr(i));
    if (length > 0) {
      out.append(bytes, i, length);
    } else if (bytes[i] != '\r') {  // a text from Windows shows as it should
      out += kReplacement;
    }
    i += std::max<size_t>(1, length);
  }
  return out;
}

std::vector<int32_t> encode_prompt(std::string_view prompt, bool text, int64_t vocab_size) {
  std::vector<int32_t> tokens;
  if (prompt.empty()) {
    const int32_t start = text ? '\n' : 50256;
    return {start < vocab_size ? start : 0};
  }
  const auto append = [&](int64_t token, std::string_view shown) {
    if (token < 0 || token >= vocab_size)
      throw UsageError(
          fmt::format("--prompt: '{}' is token {}, not below the vocabulary of {}", shown, token, vocab_size));
    tokens.push_back(static_cast<int32_t>(token));
  };
  if (text) {
    for (const char& c : prompt) append(static_cast<unsigned char>(c), std::string_view(&c, 1));
    return tokens;
  }
  constexpr std::string_view blanks = " ,\t\n";
  for (size_t begin = 0; (begin = prompt.find_first_not_of(blanks, begin)) != std::string_view::npos;) {
    const size_t end = std::min(prompt.size(), prompt.find_first_of(blanks, begin));
    const std::string_view word = prompt.substr(begin, end - begin);
    int64_t token = 0;
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || rest != word.data() + word.size())
      throw UsageError(fmt::format(
          "--prompt: '{}' is not a token number; there is no tokenizer for this data: give numbers, as in '15496 995'",
          word));
    append(token, word);
    begin = end;
  }
  if (tokens.empty()) return encode_prompt({}, text, vocab_size);
  return tokens;
}

}  // namespace trencadis
