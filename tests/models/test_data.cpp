// models/data: which token is where, that bad files are refused, and that samples depend on nothing but their number.
#include <algorithm>
#include <numeric>
#include <set>

#include "models/data/batches.h"
#include "models/data/dataset.h"
#include "models/data/token_files.h"
#include "temp_folder.h"
#include "token_bytes.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

TokenRange text_range(std::string text) {
  auto files = TokenFiles::from_text("a text", std::move(text));
  const int64_t size = files->size();
  return {std::move(files), 0, size, "a text"};
}

}  // namespace

TEST_CASE("token files: the formats, told apart") {
  const TempFolder folder;
  const std::vector<uint16_t> small = {5, 50256, 0, 7};
  const std::vector<uint32_t> large = {128000, 1, 70000};

  const auto text = TokenFiles::open(folder.write("a.txt", "h\xC3\xA9!\n"));
  CHECK(text->is_text());
  CHECK(text->default_vocab_size() == 256);
  CHECK(read_all(*text, 256) == std::vector<int32_t>{'h', 0xC3, 0xA9, '!', '\n'});

  const auto gpt2 = TokenFiles::open(folder.write("b.bin", header(20240520, 1, 4) + as_bytes(small)));
  CHECK_FALSE(gpt2->is_text());
  CHECK(gpt2->default_vocab_size() == 50257);
  CHECK(read_all(*gpt2, 50257) == std::vector<int32_t>{5, 50256, 0, 7});

  const auto llama = TokenFiles::open(folder.write("c.bin", header(20240801, 7, 3) + as_bytes(large)));
  CHECK(read_all(*llama, 128256) == std::vector<int32_t>{128000, 1, 70000});

  const auto plain = TokenFiles::open(folder.write("d.bin", as_bytes(small)));
  CHECK(read_all(*plain, 50257) == std::vector<int32_t>{5, 50256, 0, 7});

  // llm.c's header counts more than the ending: these are tokens wherever they lie.
  CHECK(TokenFiles::open(folder.write("tokens", header(20240520, 1, 4) + as_bytes(small)))->size() == 4);
}

TEST_CASE("token files: several are one row, sorted by name") {
  const TempFolder folder;
  folder.write("train_2.bin", as_bytes(std::vector<uint16_t>{4, 5}));
  folder.write("train_1.bin", header(20240520, 1, 3) + as_bytes(std::vector<uint16_t>{1, 2, 3}));
  folder.write("train_3.bin", header(20240801, 7, 1) + as_bytes(std::vector<uint32_t>{6}));
  folder.write("val_1.bin", as_bytes(std::vector<uint16_t>{9}));
  const auto files = TokenFiles::open(folder.path("train_*.bin"));
  CHECK(read_all(*files, 10) == std::vector<int32_t>{1, 2, 3, 4, 5, 6});
  std::vector<int32_t> middle(4);
  files->read(2, 4, 10, middle.data());
  CHECK(middle == std::vector<int32_t>{3, 4, 5, 6});
  CHECK(contains(files->name(), "train_*.bin (3 files)"));
  CHECK(read_all(*TokenFiles::open(folder.path("{val,train}_1.bin")), 10) == std::vector<int32_t>{1, 2, 3, 9});
  CHECK(read_all(*TokenFiles::open(folder.write("a[1]*.txt", "x")), 256) == std::vector<int32_t>{'x'});

  folder.write("mixed_1.txt", "text");
  folder.write("mixed_2.bin", as_bytes(std::vector<uint16_t>{9}));
  CHECK(contains(open_error(folder.path("mixed_*")), "one is text, the other tokens"));
}

TEST_CASE("token files: each bad file is an error that names file, value and remedy") {
  const TempFolder folder;
  const std::string four = as_bytes(std::vector<uint16_t>{1, 2, 3, 4});
  struct Case {
    std::string name, bytes;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases = {
      {"empty.txt", "", {"empty.txt", "is empty", "give a file"}},
      {"empty.bin", "", {"empty.bin", "is empty"}},
      {"none.bin", header(20240520, 1, 0), {"none.bin", "counts 0 tokens"}},
      {"version.bin", header(20240520, 3, 4) + four, {"version.bin", "version 3, expected 1", "write it again"}},
      {"version7.bin", header(20240801, 1, 2) + four, {"version7.bin", "version 1, expected 7"}},
      {"short.bin",
       header(20240520, 1, 9) + four,
       {"short.bin", "counts 9 tokens", "1042 bytes, but it has 1032", "again"}},
      {"long.bin", header(20240520, 1, 3) + four, {"long.bin", "counts 3 tokens", "1030 bytes, but it has 1032"}},
      {"wide.bin", header(20240801, 7, 4) + four, {"wide.bin", "1040 bytes, but it has 1032"}},
      {"huge.bin",
       header(20240520, 1, 0xFFFFFFFFu) + four,
       {"huge.bin", "counts 4294967295 tokens", "8589935614 bytes"}},
      {"cut.bin", header(20240520, 1, 4).substr(0, 100), {"cut.bin", "ends after 100 bytes", "header of 1024"}},
      {"model.bin", header(20240326, 3, 4) + four, {"model.bin", "magic number 20240326", "expected 20240520"}},
      {"swapped.bin", header(__builtin_bswap32(20240520), 1, 4) + four, {"swapped.bin", "20240520", "wrong order"}},
      {"odd.bin", four + "x", {"odd.bin", "9 bytes are not a multiple of 2", "uint16", "20240520"}},
      {"text.bin", "It was the best of times,", {"text.bin", "begins like text", "*.txt"}},
      {"binary.txt", std::string("ab\0cd", 5), {"binary.txt", "zero byte", "*.bin"}},
  };
  for (const Case& c : cases) {
    const std::string error = open_error(folder.write(c.name, c.bytes));
    CHECK_FALSE(error.empty());
    for (const std::string& word : c.words) CHECK(contains(error, word));
  }
  CHECK(contains(open_error(folder.path("missing.txt")), "missing.txt: no such file; check the path"));
  CHECK(contains(open_error(folder.path("*.parquet")), "*.parquet: no such file, and as a pattern it matches none"));
  CHECK(contains(open_error(folder.path("")), "is a folder; give a file"));
  CHECK(contains(open_error("/dev/null"), "not a regular file"));
}

TEST_CASE("token files: a token that is not below the vocabulary is never used") {
  const TempFolder folder;
  const std::vector<uint16_t> tokens = {3, 4, 65, 5};
  const auto files = TokenFiles::open(folder.write("a.bin", header(20240520, 1, 4) + as_bytes(tokens)));
  std::vector<int32_t> out(4);
  files->read(0, 2, 65, out.data());
  const std::string error = error_of<DataError>([&] { files->read(1, 3, 65, out.data()); });
  for (const char* part : {"a.bin", "token 65", "position 2", "vocabulary of 65", "--vocab-size 66"})
    CHECK(contains(error, part));
  CHECK(contains(error_of<DataError>([&] { files->check_start(65); }), "token 65 at position 2"));
  CHECK(error_of<DataError>([&] { files->check_start(66); }).empty());
  CHECK(contains(error_of<DataError>([&] { open_dataset(folder.path("a.bin"), "", 65); }), "token 65 at position 2"));

  // The largest 32-bit token is negative as int32.
  const auto wide = TokenFiles::open(folder.write("w.bin", header(20240801, 7, 1) + as_bytes<uint32_t>({0xFFFFFFFFu})));
  CHECK(contains(error_of<DataError>([&] { wide->read(0, 1, 0x7FFFFFFF, out.data()); }),
                 "token 4294967295 at position 0"));
  // A text has one too where the model's vocabulary is small.
  CHECK(contains(error_of<DataError>([&] { text_range("abz").files->check_start('z'); }), "token 122 at position 2"));
}

TEST_CASE("token files: behind 2^31 tokens, in a sparse file, with little memory") {
  const TempFolder folder;
  const int64_t count = (int64_t{1} << 31) + 3;
  const std::string path = folder.path("sparse.bin");
  std::ofstream(path).close();
  std::error_code error;
  std::filesystem::resize_file(path, static_cast<uintmax_t>(count) * 2, error);
  if (error) {
    MESSAGE("no sparse file of 4 GiB can be made here: " << error.message());
    return;
  }
  const uint16_t last[2] = {40, 41};
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp((count - 2) * 2).write(reinterpret_cast<const char*>(last), 4);
  file.close();

  const Dataset data = open_dataset(path, "", 50257);
  CHECK(data.train.size() + data.val.size() == count);
  CHECK(data.val.size() == count / 10);
  const Batches val = Batches::validation({data.train.files, 0, count, "all"}, 1, 50257);
  CHECK(val.windows() == count - 1);
  int32_t id = 0, target = 0;
  val.fill(count - 2, 1, &id, &target);
  CHECK(id == 40);
  CHECK(target == 41);

  // Pages are given back: 300 windows that lie apart would otherwise keep 64 KiB each.
  const Batches train = Batches::training(data.train, 1024, 50257, 1);
  std::vector<int32_t> ids(1024), targets(1024);
  const auto resident = [] {
    long pages = 0, shown = 0;
    std::ifstream("/proc/self/statm") >> shown >> pages;
    return pages * 4096;
  };
  const long before = resident();
  for (int64_t sample = 0; sample < 300; ++sample) train.fill(sample, 1, ids.data(), targets.data());
  CHECK(resident() - before < 8 << 20);
}

TEST_CASE("permutation: a bijection, drawn by its key") {
  for (const int64_t n : {1, 2, 3, 4, 5, 16, 17, 255, 1000, 4097}) {
    const Permutation permutation(n, 7);
    std::vector<bool> seen(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t p = permutation(i);
      REQUIRE((p >= 0 && p < n));
      CHECK_FALSE(seen[static_cast<size_t>(p)]);
      seen[static_cast<size_t>(p)] = true;
    }
  }
  // Another key, another order; and it is shuffled: few stay in place (one is expected), few
  // neighbours stay neighbours.
  const int64_t n = 1000;
  const Permutation a(n, 1), b(n, 2);
  int64_t same = 0, fixed = 0, neighbours = 0;
  for (int64_t i = 0; i < n; ++i) {
    same += a(i) == b(i);
    fixed += a(i) == i;
    neighbours += i > 0 && a(i) == a(i - 1) + 1;
  }
  CHECK(same < 10);
  CHECK(fixed < 10);
  CHECK(neighbours < 10);

  // Also behind 2^31 elements, where a few hundred images are still different.
  const int64_t large = (int64_t{1} << 31) + 3;
  const Permutation far(large, 9);
  std::set<int64_t> images;
  for (int64_t i = large - 300; i < large; ++i) images.insert(far(i));
  CHECK(images.size() == 300);
  CHECK(*images.rbegin() < large);
  CHECK(*images.begin() >= 0);
  CHECK(*images.rbegin() > (int64_t{1} << 30));
}

TEST_CASE("windows: each one of an epoch exactly once, then another order") {
  for (const auto& [tokens, T] :
       {std::pair<int64_t, int64_t>{101, 10}, {105, 10}, {9, 8}, {10, 8}, {1000, 7}, {2, 1}}) {
    const WindowOrder order = WindowOrder::shuffled(tokens, T, 42);
    CHECK(order.windows() == (tokens - 1) / T);
    std::vector<std::vector<int64_t>> epochs;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int64_t> begins;
      for (int64_t i = 0; i < order.windows(); ++i) begins.push_back(order.begin_of(epoch * order.windows() + i));
      epochs.push_back(begins);
      std::sort(begins.begin(), begins.end());
      CHECK(begins.front() >= 0);
      CHECK(begins.back() + T < tokens);  // the last target exists
      for (size_t i = 1; i < begins.size(); ++i) CHECK(begins[i] - begins[i - 1] == T);
    }
    if (order.windows() > 5) CHECK(epochs[0] != epochs[1]);
  }
  // Tokens that are left over are reached by the shift of some epoch.
  const WindowOrder order = WindowOrder::shuffled(105, 10, 1);
  std::set<int64_t> shifts;
  for (int64_t sample = 0; sample < 500; ++sample) shifts.insert(order.begin_of(sample) % 10);
  CHECK(shifts == std::set<int64_t>{0, 1, 2, 3, 4});
  CHECK(order.begin_of(17) != WindowOrder::shuffled(105, 10, 2).begin_of(17));
}

TEST_CASE("windows: 64-bit arithmetic, without any data") {
  const int64_t tokens = (int64_t{1} << 31) + 3;
  const WindowOrder one = WindowOrder::sequential(tokens, 1);
  CHECK(one.windows() == tokens - 1);
  CHECK(one.begin_of(tokens - 2) == tokens - 2);
  CHECK(one.begin_of(tokens - 1) == -1);
  const int64_t many = int64_t{10'000'000'000'000};
  const WindowOrder shuffled = WindowOrder::shuffled(many, 1024, 3);
  for (const int64_t sample : {int64_t{0}, shuffled.windows(), 5 * shuffled.windows() + 123456789, int64_t{1} << 60}) {
    CHECK(shuffled.begin_of(sample) >= 0);
    CHECK(shuffled.begin_of(sample) + 1024 < many);
  }
}

TEST_CASE("batches: the same samples however ranks and micro-batches share them") {
  std::string text;
  for (int i = 0; i < 997; ++i) text += static_cast<char>(i * 37 % 251);
  const int64_t T = 8, samples = 24;
  const Batches batches = Batches::training(text_range(text), T, 256, 5);
  std::vector<int32_t> ids(samples * T), targets(samples * T);
  batches.fill(100, samples, ids.data(), targets.data());
  for (int64_t i = 0; i < samples * T; ++i)
    if (i % T != T - 1) CHECK(targets[i] == ids[i + 1]);
  for (const int64_t W : {1, 2, 3, 4}) {
    for (const int64_t B : {1, 2}) {
      const int64_t accumulation = samples / (W * B);
      for (int64_t rank = 0; rank < W; ++rank) {
        for (int64_t a = 0; a < accumulation; ++a) {
          const int64_t m = a * W + rank;
          std::vector<int32_t> part(B * T), part_targets(B * T);
          batches.fill(100 + m * B, B, part.data(), part_targets.data());
          CHECK(std::equal(part.begin(), part.end(), ids.begin() + m * B * T));
          CHECK(std::equal(part_targets.begin(), part_targets.end(), targets.begin() + m * B * T));
        }
      }
    }
  }
}

TEST_CASE("batches: validation walks through, and ends") {
  const Batches val = Batches::validation(text_range("abcdefgh"), 3, 256);
  CHECK(val.windows() == 2);
  std::vector<int32_t> ids(9), targets(9);
  val.fill(0, 3, ids.data(), targets.data());
  CHECK(ids == std::vector<int32_t>{'a', 'b', 'c', 'd', 'e', 'f', 0, 0, 0});
  CHECK(targets == std::vector<int32_t>{'b', 'c', 'd', 'e', 'f', 'g', -1, -1, -1});
}

TEST_CASE("batches: a text shorter than one sequence") {
  const TempFolder folder;
  CHECK(Batches::training(text_range("abcde"), 4, 256, 0).windows() == 1);
  const std::string error = error_of<DataError>([] { Batches::training(text_range("abcde"), 5, 256, 0); });
  for (const char* part : {"a text", "5 tokens", "needs 6", "--block-size 4 or less", "more text"})
    CHECK(contains(error, part));

  const Dataset data = open_dataset(folder.write("t.txt", std::string(100, 'x')), "", 0);
  const std::string val = error_of<DataError>([&] { Batches::validation(data.val, 64, 256); });
  for (const char* part :
       {"the last tenth of", "t.txt", "10 tokens", "needs 65", "--block-size 9 or less", "--val-data"})
    CHECK(contains(val, part));
  // No block size helps a single token, so none is named.
  CHECK(error_of<DataError>([] { Batches::training(text_range("a"), 5, 256, 0); }).ends_with("give more text"));
}

TEST_CASE("dataset: the last tenth validates, or what is named") {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 105; ++i) text += static_cast<char>('A' + i % 26);
  const std::string path = folder.write("t.txt", text);
  const Dataset data = open_dataset(path, "", 0);
  CHECK(data.text);
  CHECK(data.vocab_size == 256);
  CHECK(data.train.begin == 0);
  CHECK(data.train.end == 95);
  CHECK(data.val.begin == 95);
  CHECK(data.val.end == 105);
  CHECK(contains(data.message, "95 bytes to train on, 10 to validate (the last tenth), vocabulary 256"));
  // A window never reaches from one part into the other.
  const Batches val = Batches::validation(data.val, 3, 256);
  int32_t ids[3], targets[3];
  val.fill(0, 1, ids, targets);
  CHECK(ids[0] == text[95]);

  const std::string other = folder.write("v.txt", "validation");
  const Dataset both = open_dataset(path, other, 300);
  CHECK(both.train.size() == 105);
  CHECK(both.val.size() == 10);
  CHECK(both.vocab_size == 300);
  const std::string tokens = folder.write("v.bin", as_bytes(std::vector<uint16_t>{1, 2, 3}));
  CHECK(contains(error_of<DataError>([&] { open_dataset(path, tokens, 0); }), "must be of one kind"));
  CHECK(open_dataset(tokens, "", 0).vocab_size == 50257);
}

TEST_CASE("dataset: where nothing is named, what was fetched, else our own sources") {
  const TempFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path(""));
  const Dataset own = open_dataset("", "", 0);
  CHECK(own.train.size() > 10'000);
  CHECK(contains(own.message,
                 own.train.files->name() == "this project's own sources" ? "no --train-data" : "quickstart.sh"));
  folder.write("data/shakespeare.txt", std::string(50, 'x'));
  const Dataset fetched = open_dataset("", "", 0);
  std::filesystem::current_path(before);
  CHECK(fetched.train.size() == 45);
  CHECK(contains(fetched.message, "data/shakespeare.txt (what quickstart.sh fetched)"));

  // In the order of paths; without what differs between checkouts.
  const TempFolder tree;
  tree.write("b/z.h", "3");
  tree.write("b/data/y.cpp", "2");
  tree.write("a.md", "1");
  tree.write("build-x/CMakeFiles/c.cpp", "no");
  tree.write("data/d.py", "no");
  tree.write(".git/e.sh", "no");
  tree.write("f.txt", "no");
  CHECK(read_own_sources(tree.path("")) == "123");
  CHECK(read_own_sources(tree.path("missing")).empty());
}

TEST_CASE("decode: what a terminal may show") {
  const auto shown = [](const std::string& bytes) {
    const std::vector<int32_t> tokens(reinterpret_cast<const unsigned char*>(bytes.data()),
                                      reinterpret_cast<const unsigned char*>(bytes.data()) + bytes.size());
    return decode(tokens, true);
  };
  const std::string bad = "\xEF\xBF\xBD";
  CHECK(shown("To be,\n\tor\r\n") == "To be,\n\tor\n");
  CHECK(shown("h\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80") == "h\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80");
  CHECK(shown("\x1B[31m") == bad + "[31m");                   // an escape sequence
  CHECK(shown("\xC3") == bad);                                // cut short
  CHECK(shown("\xC3(") == bad + "(");                         // no continuation
  CHECK(shown("\xC0\xAF\xC2\x9B") == bad + bad + bad + bad);  // overlong; a C1 control character
  CHECK(shown("\xED\xA0\x80") == bad + bad + bad);            // a surrogate
  CHECK(shown("\xF4\x90\x80\x80") == bad + bad + bad + bad);  // above U+10FFFF
  CHECK(decode(std::vector<int32_t>{300, -1}, true) == bad + bad);
  CHECK(decode(std::vector<int32_t>{15496, 995}, false) == "15496 995");
}

TEST_CASE("prompt: bytes, or token numbers") {
  CHECK(encode_prompt("h\xC3", true, 256) == std::vector<int32_t>{'h', 0xC3});
  CHECK(encode_prompt("", true, 256) == std::vector<int32_t>{'\n'});
  CHECK(encode_prompt(" 15496, 995 ", false, 50257) == std::vector<int32_t>{15496, 995});
  CHECK(encode_prompt(" ", false, 50257) == std::vector<int32_t>{50256});
  CHECK(encode_prompt("", false, 65) == std::vector<int32_t>{0});
  CHECK(
      contains(error_of<UsageError>([] { encode_prompt("12 hello", false, 50257); }), "'hello' is not a token number"));
  CHECK(contains(error_of<UsageError>([] { encode_prompt("50257", false, 50257); }),
                 "not below the vocabulary of 50257"));
  CHECK(contains(error_of<UsageError>([] { encode_prompt("-1", false, 50257); }), "-1"));
  CHECK(contains(error_of<UsageError>([] { encode_prompt("az", true, 'z'); }), "'z' is token 122"));
}

TEST_CASE("chapter models/data: the example") {
  std::string output;
  // [example]
  // 26 letters, windows of T = 5: five windows an epoch, and no token left over.
  auto letters = TokenFiles::from_text("letters", "abcdefghijklmnopqrstuvwxyz");
  const int64_t T = 5, B = 2, W = 2;  // W ranks with B sequences each
  const Batches batches = Batches::training({letters, 0, letters->size(), "letters"}, T, 256, /*seed=*/1);
  for (int64_t step = 0; step < 3; ++step) {
    for (int64_t rank = 0; rank < W; ++rank) {
      std::vector<int32_t> ids(B * T), targets(B * T);
      batches.fill((step * W + rank) * B, B, ids.data(), targets.data());
      output +=
          fmt::format("step {} rank {}: {} {}\n", step, rank, decode({&ids[0], 5}, true), decode({&ids[5], 5}, true));
    }
  }
  // [end]
  CHECK(output ==
        "step 0 rank 0: abcde pqrst\n"
        "step 0 rank 1: uvwxy klmno\n"
        "step 1 rank 0: fghij fghij\n"
        "step 1 rank 1: uvwxy pqrst\n"
        "step 2 rank 0: klmno abcde\n"
        "step 2 rank 1: fghij klmno\n");
}
