// models/options: the layers, the aliases, and that each wrong input is an error that helps.
#include <set>
#include <sstream>

#include "models/options/config_file.h"
#include "models/options/options.h"
#include "temp_folder.h"

using namespace trencadis;
using namespace trencadis::test;

namespace {

TrainOptions parse(std::vector<std::string> arguments, int world = 1) {
  return parse_train({"train_gpt", std::move(arguments)}, world, [](TrainOptions&, const std::string&) {});
}

std::string usage_error(std::vector<std::string> arguments, int world = 1) {
  return error_of<UsageError>([&] { parse(arguments, world); });
}

// All words in the error of one flag and value.
void expect_error(std::vector<std::string> arguments, std::vector<std::string> words, int world = 1) {
  const std::string error = usage_error(arguments, world);
  INFO("arguments: ", arguments.front());
  CHECK_FALSE(error.empty());
  for (const std::string& word : words) CHECK(contains(error, word));
}

}  // namespace

TEST_CASE("options: defaults are the preset tiny") {
  const TrainOptions o = parse({});
  CHECK(o.preset == "tiny");
  CHECK(o.n_layer == 4);
  CHECK(o.n_head == 4);
  CHECK(o.n_embd == 128);
  CHECK(o.block_size == 64);
  CHECK(o.batch_size == 12);
  CHECK(o.vocab_size == 0);
  CHECK(o.zero_stage == 0);
  CHECK(o.weight_decay == 0.1);
  CHECK(o.beta2 == 0.95);
  CHECK(o.metrics_path() == "out/metrics.jsonl");
  CHECK(o.print_and_exit.empty());
  CHECK(fingerprint(o) == fingerprint(TrainOptions{}));  // the struct says the same as the table of presets
  CHECK(parse({"--metrics", "off"}).metrics_path().empty());
  CHECK(parse({"-o", "run", "--metrics=m.jsonl"}).metrics_path() == "m.jsonl");
}

TEST_CASE("options: presets, and what is built from them") {
  for (const Preset& preset : presets()) {
    const TrainOptions o = parse({"--preset", preset.name});
    CHECK(o.n_layer == preset.n_layer);
    CHECK(o.n_embd == preset.n_embd);
    CHECK(o.min_lr == doctest::Approx(preset.lr / 10));
  }
  const TrainOptions gpt2 = parse({"--preset", "gpt2", "--n-layer", "3"});
  CHECK(gpt2.n_layer == 3);
  CHECK(gpt2.n_embd == 768);
  CHECK(gpt2.block_size == 1024);
  CHECK(parse({"--n-layer", "3", "--preset", "gpt2"}).n_layer == 3);  // the order does not matter
  CHECK(parse({"--preset", "gpt2", "--print-config"}).print_and_exit.find("min-lr = 6e-05\n") != std::string::npos);
}

TEST_CASE("options: every alias, and - and _ alike") {
  const TrainOptions o = parse({"-z",
                                "0",
                                "--seq_len=32",
                                "-b",
                                "3",
                                "--gradient_accumulation_steps",
                                "2",
                                "-x",
                                "40",
                                "--learning_rate=0.01",
                                "-u",
                                "4",
                                "-c",
                                "0.2",
                                "-i",
                                "a.txt",
                                "-j",
                                "b.txt",
                                "-v",
                                "7",
                                "--eval_iters",
                                "9",
                                "-s",
                                "11",
                                "-r",
                                "-o",
                                "dir",
                                "--min_lr=0.001"});
  CHECK(o.block_size == 32);
  CHECK(o.batch_size == 3);
  CHECK(o.grad_accum == 2);
  CHECK(o.max_steps == 40);
  CHECK(o.lr == 0.01);
  CHECK(o.warmup_steps == 4);
  CHECK(o.weight_decay == 0.2);
  CHECK(o.train_data == "a.txt");
  CHECK(o.val_data == "b.txt");
  CHECK(o.eval_interval == 7);
  CHECK(o.eval_steps == 9);
  CHECK(o.sample_interval == 11);
  CHECK(o.activation_checkpointing);
  CHECK(o.out_dir == "dir");
  CHECK(parse({"-t", "16", "-l", "0.5"}).block_size == 16);
  CHECK(parse({"--max-iters", "9", "--warmup-iters", "3"}).warmup_steps == 3);
  CHECK(parse({"-b4"}).batch_size == 4);
  // llm.c writes -r 1, Python users True.
  CHECK(parse({"-r", "1", "--untied"}).activation_checkpointing);
  CHECK(parse({"-r", "--untied=True"}).untied);
  CHECK_FALSE(parse({"-r", "0"}).activation_checkpointing);
  CHECK_FALSE(parse({"--untied", "--untied=off"}).untied);
  // Given twice, the last counts.
  CHECK(parse({"-b", "3", "--batch-size", "5"}).batch_size == 5);
}

TEST_CASE("options: text values are taken as they stand") {
  CHECK(parse({"--prompt", "--under_score --x"}).prompt == "--under_score --x");
  CHECK(parse({"--prompt=", "--seed", "3"}).prompt.empty());
  CHECK(parse({"--prompt=", "--seed", "3"}).seed == 3);
  CHECK(parse({"--prompt", "", "--seed", "3"}).seed == 3);
  CHECK(parse({"--prompt=a=b_c"}).prompt == "a=b_c");
  CHECK(parse({"--prompt", "[a,b]"}).prompt == "[a,b]");
  CHECK(parse({"--prompt", "two words\n"}).prompt == "two words\n");
  CHECK(parse({"-i", "data/x_*.bin"}).train_data == "data/x_*.bin");
}

TEST_CASE("options: wrong flags are named, with the nearest right one") {
  expect_error({"--batchsize", "3"}, {"unknown flag --batchsize", "did you mean --batch-size?"});
  expect_error({"--learning_rat=1"}, {"unknown flag --learning-rat;", "did you mean --learning-rate?"});
  expect_error({"--zreo-stage", "0"}, {"did you mean --zero-stage?"});
  expect_error({"--flash-attention-please"}, {"unknown flag --flash-attention-please; --help lists"});
  expect_error({"-q"}, {"unknown flag -q", "--help"});
  expect_error({"-lr", "3"}, {"-lr: long flags have two dashes: --lr"});
  expect_error({"input.txt"}, {"'input.txt' belongs to no flag", "--train-data input.txt"});
  expect_error({"--lr"}, {"--lr", "a value is missing"});
  expect_error({"-b"}, {"--batch-size (-b)", "a value is missing"});
}

TEST_CASE("options: when to save, and where to go on") {
  const TrainOptions plain = parse({});
  CHECK(plain.save_seconds() == 15 * 60);
  CHECK(plain.save_steps() == 0);
  CHECK(plain.resume == "");
  const TrainOptions steps = parse({"-n", "250", "-y", "1"});
  CHECK(steps.save_steps() == 250);
  CHECK(steps.save_seconds() == 0);
  CHECK(steps.resume == "auto");
  CHECK(parse({"--save-interval", "0.5min"}).save_seconds() == 30);
  CHECK(parse({"--save-interval", "off"}).save_steps() == 0);
  CHECK(parse({"--resume", "0"}).resume == "");
  CHECK(parse({"--resume", "out/step-00000010"}).resume == "out/step-00000010");
  for (const char* wrong : {"often", "-1", "0min", "min", "1.5", "15 min", "1e3min3"})
    expect_error({"--save-interval", wrong}, {"--save-interval (-n)", wrong, "15min, off"});
}

TEST_CASE("options: wrong values name flag, value and what is allowed") {
  for (const char* flag : {"--n-layer", "--n-head", "--n-embd", "--block-size", "--batch-size", "--grad-accum",
                           "--max-steps", "--timeout"})
    for (const char* value : {"0", "-1", "x", "1.5", "1e3", "", "99999999999999999999", "nan"})
      expect_error({flag, value}, {flag, std::string("'") + value + "'", "allowed: whole numbers from 1"});
  for (const char* flag : {"--vocab-size", "--total-batch-tokens", "--warmup-steps", "--eval-interval", "--eval-steps",
                           "--sample-interval", "--sample-tokens", "--top-k", "--prefetch", "--threads", "--seed"}) {
    for (const char* value : {"-1", "x", "0.5", "", "inf"})
      expect_error({flag, value}, {flag, std::string("'") + value + "'", "allowed: whole numbers from 0"});
    CHECK(usage_error({flag, "0"}).empty());
  }
  for (const char* flag :
       {"--lr", "--min-lr", "--weight-decay", "--grad-clip", "--temperature", "--dropout", "--beta1", "--beta2"})
    for (const char* value : {"-0.1", "nan", "inf", "-inf", "x", "", "1e999", "0,1"})
      expect_error({flag, value}, {flag, std::string("'") + value + "'", "allowed: numbers from 0"});
  for (const char* flag : {"--dropout", "--beta1", "--beta2"}) {
    expect_error({flag, "1"}, {flag, "'1'", "below 1"});
    CHECK(usage_error({flag, "0.999"}).empty());
  }
  expect_error({"--lr-schedule", "cosin"}, {"--lr-schedule", "'cosin'", "cosine, linear, constant"});
  expect_error({"--progress=fancy"}, {"'fancy'", "auto, bar, plain, off"});
  expect_error({"--untied=maybe"}, {"--untied", "'maybe'", "on, off"});
  expect_error({"--preset", "gtp2"}, {"--preset", "'gtp2'", "did you mean gpt2?", "shakespeare-char"});
  expect_error({"--device", "tpu"}, {"'tpu'", "cpu, cuda"});
  expect_error({"-z", std::to_string(kHighestZeroStage + 1)}, {"--zero-stage (-z)"});
  expect_error({"-z", "-1"}, {"--zero-stage (-z)", "'-1'"});
  expect_error({"--out-dir", ""}, {"--out-dir", "give a folder"});
}

TEST_CASE("options: values that do not belong together") {
  expect_error({"--n-embd", "100", "--n-head", "12"}, {"--n-embd 100 is not divisible by --n-head 12",
                                                       "--n-head 10 or --n-head 20 or --n-embd 96 or --n-embd 108"});
  expect_error({"--n-embd", "4", "--n-head", "5"}, {"--n-head 4 or --n-embd 5"});
  expect_error({"--lr", "1e-4", "--min-lr", "1e-3"}, {"--min-lr 0.001 is above --lr 0.0001"});
  CHECK(usage_error({"--lr", "1e-4", "--min-lr", "1e-3", "--lr-schedule", "constant"}).empty());
  expect_error({"--max-steps", "10", "--warmup-steps", "11"}, {"--warmup-steps 11", "--max-steps 10"});
  expect_error({"--val-data", "v.txt"}, {"--val-data v.txt", "--train-data"});
  expect_error({"-b", "1000000", "-t", "1000000", "--vocab-size", "2000000"}, {"--batch-size 1000000", "smaller"});
  // Alone each is allowed; together they would not fit 64 bits.
  CHECK(usage_error({"--n-layer", "10000"}).empty());
  CHECK(usage_error({"--grad-accum", "1000000"}).empty());
  expect_error({"-b", "1000000", "-t", "100000", "--n-layer", "10000"}, {"--batch-size 1000000", "--n-layer 10000"});
  expect_error({"-b", "100000", "-t", "1000000"}, {"--batch-size 100000", "smaller"});  // vocabulary: 50257
  expect_error({"--n-layer", "10000", "--n-embd", "1000000"}, {"--n-layer 10000", "--n-embd 1000000", "smaller"});
  expect_error({"-b", "1000", "-t", "1000", "--grad-accum", "1000000"}, {"--grad-accum 1000000", "1e+16 tokens"},
               10'000);
  expect_error({"--plan", "--params", "1e14", "--grad-accum", "10000"}, {"--grad-accum 10000", "smaller"});
  expect_error({"--plan", "--n-embd", "65536", "--n-layer", "1000", "--grad-accum", "100000", "-b", "1"},
               {"--grad-accum 100000", "smaller"});
  expect_error({"--plan", "--world", "1000000", "-b", "1000", "-t", "64", "--grad-accum", "100000"},
               {"--grad-accum 100000", "on 1000000 ranks"});
  // What is not given follows what is.
  const TrainOptions o = parse({"--lr", "1e-5", "--max-steps", "50"});
  CHECK(o.min_lr == 1e-6);
  CHECK(o.warmup_steps == 5);
}

TEST_CASE("options: tokens per step") {
  const TrainOptions o = parse({"-b", "4", "-t", "8", "-d", "384"}, 3);
  CHECK(o.grad_accum == 4);
  CHECK(o.tokens_per_step(3) == 384);
  expect_error({"-b", "4", "-t", "8", "-d", "400"},
               {"--total-batch-tokens (-d)", "400", "batch-size 4 * block-size 8 * 3 ranks = 96", "use 384 or 480"}, 3);
  expect_error({"-b", "4", "-t", "8", "-d", "95"}, {"use 96"}, 3);
  expect_error({"-b", "4", "-t", "8", "-d", "64", "--grad-accum", "3"},
               {"--grad-accum 3", "needs 2", "give one of them"});
  CHECK(parse({"-b", "4", "-t", "8", "-d", "64", "--grad-accum", "2"}).grad_accum == 2);
}

TEST_CASE("options: a plan is for the ranks it names, and nothing else plans") {
  CHECK(parse({"--plan", "--world", "8", "-b", "4", "-t", "8", "-d", "512"}).grad_accum == 2);
  CHECK(parse({"--plan", "-b", "4", "-t", "8", "-d", "512"}, 2).grad_accum == 8);
  expect_error({"--plan", "--world", "8", "-b", "4", "-t", "8", "-d", "32"}, {"* 8 ranks = 256", "use 256"});
  expect_error({"--world", "8"}, {"--world", "--plan"});
  expect_error({"--params", "7e9"}, {"--params", "--plan"});
  expect_error({"--device-memory", "24GB"}, {"--device-memory", "--plan"});
  CHECK(usage_error({"--plan", "--world", "8", "--params", "7e9", "--device-memory", "24GB"}).empty());
}

TEST_CASE("config file: below the command line, above the preset") {
  const TempFolder folder;
  const std::string path = folder.write("run.conf",
                                        "# a comment\r\n\n"
                                        "preset = gpt2   # another\n"
                                        "n_layer=2\n"
                                        "learning-rate = 2e-4\n"
                                        "untied = true\n"
                                        "prompt = \" # \\\"x\\\"\\n\" # quoted\n"
                                        "train-data = a#b.txt\n"
                                        "total-batch-tokens = 8192");
  const TrainOptions o = parse({"--lr", "1e-4", "--config", path});
  CHECK(o.preset == "gpt2");
  CHECK(o.n_head == 12);
  CHECK(o.n_layer == 2);
  CHECK(o.lr == 1e-4);
  CHECK(o.untied);
  CHECK(o.prompt == " # \"x\"\n");
  CHECK(o.train_data == "a#b.txt");
  CHECK(o.grad_accum == 2);
  // A preset on the command line replaces that of the file, and still lies below the file's other keys.
  const TrainOptions tiny = parse({"--config", path, "--preset", "tiny", "-d", "0"});
  CHECK(tiny.n_embd == 128);
  CHECK(tiny.n_layer == 2);
  // A flag replaces what the file says the other way.
  const TrainOptions counted = parse({"--config", path, "--grad-accum", "3"});
  CHECK(counted.grad_accum == 3);
  CHECK(counted.total_batch_tokens == 0);
}

TEST_CASE("config file: wrong lines name file, line and remedy") {
  TrainOptions options;
  const FlagTable table = train_flags(options);
  const auto error = [&](const std::string& text) {
    return error_of<UsageError>([&] { parse_config(table, text, "run.conf"); });
  };
  CHECK(contains(error("\nlerning-rate = 1\n"), "run.conf:2: unknown key 'lerning-rate'; did you mean learning-rate?"));
  CHECK(contains(error("lr 3\n"), "run.conf:1: 'lr 3' is not of the form 'key = value'"));
  CHECK(contains(error("= 3\n"), "not of the form"));
  CHECK(contains(error("lr = 1\n#\nlearning_rate = 2\n"), "run.conf:3: 'learning_rate' was given already, in line 1"));
  CHECK(contains(error("help = on\n"), "'help' is no key of a config file"));
  CHECK(contains(error("config = other\n"), "'config' is no key of a config file"));
  CHECK(contains(error("prompt = \"open\n"), "run.conf:1: the closing quote is missing"));
  CHECK(contains(error("prompt = \"a\" b\n"), "'b' stands behind the closing quote"));
  CHECK(contains(error("prompt = \"\\x\"\n"), "\\x is not known in quotes"));
  CHECK(contains(error(std::string("\xFF\x00\x01", 3)), "run.conf: is not a text"));

  const TempFolder folder;
  expect_error({"--config", folder.write("a.conf", "lr = 1\nbatch-size = many\n")},
               {"a.conf:2: batch-size", "'many'", "allowed"});
  expect_error({"--config", folder.write("b.conf", "preset = giant\n")}, {"b.conf:1: preset", "'giant'"});
  expect_error({"--config", folder.path("missing.conf")}, {"--config", "missing.conf", "cannot be read"});
  expect_error({"--config", folder.path("")}, {"--config", "cannot be read"});
}

TEST_CASE("print-config is read back to the same configuration") {
  const TempFolder folder;
  const std::vector<std::vector<std::string>> runs = {
      {},
      {"--preset", "shakespeare-char", "--lr", "0.00123456789", "-r", "--progress", "bar"},
      {"-d", "3072", "--prompt", " \"O\\n Romeo\"\n# \t", "-i", "a b#c.txt", "-j", "v #.txt", "--metrics", "off"},
      {"--prompt", "#"},
      {"--prompt", "\\n stays"}};
  for (std::vector<std::string> run : runs) {
    const TrainOptions direct = parse(run, 2);
    run.push_back("--print-config");
    const std::string text = parse(run, 2).print_and_exit;
    const TrainOptions again = parse({"--config", folder.write("run.conf", text)}, 2);
    CHECK(fingerprint(again) == fingerprint(direct));
    CHECK(again.prompt == direct.prompt);
    for (const auto& [key, value] : settings_of(direct)) CHECK(contains(text, key + " = "));
  }
  // Tokens per step are kept at another number of ranks.
  const std::string text = parse({"-d", "3072", "--print-config"}, 2).print_and_exit;
  CHECK(parse({"--config", folder.write("run.conf", text)}, 1).grad_accum == 4);
}

TEST_CASE("fingerprint: ranks compare it, and name what differs") {
  const TrainOptions a = parse({"--prompt", "two\nlines"}), b = parse({"-b", "16", "--lr", "0.5"});
  CHECK(fingerprint_difference(fingerprint(a), 0, fingerprint(a), 1).empty());
  const std::string difference = fingerprint_difference(fingerprint(a), 0, fingerprint(b), 3);
  CHECK(contains(difference, "batch-size is 12 on rank 0 and 16 on rank 3"));
  CHECK(contains(difference, "; lr is 0.003 on rank 0 and 0.5 on rank 3"));
  CHECK(contains(difference, "prompt is \"two\\nlines\" on rank 0 and  on rank 3"));
  // A rank that plans or prints would leave the others waiting.
  const auto told = [](std::vector<std::string> flags) {
    return fingerprint_difference(fingerprint(parse({"--plan"})), 0, fingerprint(parse(std::move(flags))), 1);
  };
  CHECK(contains(told({}), "plan is on on rank 0 and off on rank 1"));
  CHECK(contains(told({"--plan", "--world", "8"}), "world is 0 on rank 0 and 8 on rank 1"));
  CHECK(contains(told({"--plan", "--params", "7e9"}), "params is  on rank 0 and 7000000000 on rank 1"));
  CHECK(contains(told({"--plan", "--device-memory", "1GB"}), "device-memory is  on rank 0 and 1000000000 on rank 1"));
  for (const char* flag : {"--help", "--version", "--print-config"})
    CHECK(contains(told({"--plan", flag}), "prints-and-exits is no on rank 0 and yes on rank 1"));
}

TEST_CASE("help and version") {
  const std::string help = parse({"--n-layer", "nonsense", "--unknown", "-h"}).print_and_exit;
  TrainOptions options;
  const FlagTable table = train_flags(options);
  for (const Flag& flag : table.flags())
    for (const std::string& name : flag.names) CHECK(contains(help, (name.size() == 1 ? "-" : "--") + name));
  for (const Preset& preset : presets()) CHECK(contains(help, "  " + preset.name + " "));
  CHECK(contains(help, "nanoGPT's flag of this name counts over all"));
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 112);
  CHECK(parse({"--help"}).print_and_exit == help);
  CHECK(contains(parse({"--version"}).print_and_exit, "train_gpt "));
  CHECK(parse({"--prompt", "--help"}).print_and_exit.empty());
}

TEST_CASE("flag table: names are unique, and every value has a getter that its setter reads") {
  std::set<std::string> names;
  TrainOptions options;
  const FlagTable table = train_flags(options);
  for (const Flag& flag : table.flags()) {
    for (const std::string& name : flag.names) CHECK(names.insert(name).second);
    if (flag.command_line_only) continue;
    flag.set(flag.key, flag.get());
    CHECK(fingerprint(options) == fingerprint(TrainOptions{}));
  }
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("ab", "ba") == 1);
  CHECK(edit_distance("same", "same") == 0);
}
