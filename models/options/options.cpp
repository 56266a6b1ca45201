#include "models/options/options.h"

#include <algorithm>
#include <map>

#include "models/options/config_file.h"
#include "runtime/check.h"

namespace trencadis {

namespace {

// "--n-head 10 or --n-head 20, or --n-embd 96 or --n-embd 108".
std::string divisible_choices(const TrainOptions& o) {
  std::vector<std::string> choices;
  for (int64_t head = std::min(o.n_head, o.n_embd); head >= 1; --head)
    if (o.n_embd % head == 0) {
      choices.push_back(fmt::format("--n-head {}", head));
      break;
    }
  for (int64_t head = o.n_head + 1; head <= o.n_embd; ++head)
    if (o.n_embd % head == 0) {
      choices.push_back(fmt::format("--n-head {}", head));
      break;
    }
  const int64_t below = o.n_embd / o.n_head * o.n_head;
  if (below > 0) choices.push_back(fmt::format("--n-embd {}", below));
  choices.push_back(fmt::format("--n-embd {}", below + o.n_head));
  return fmt::format("{}", fmt::join(choices, " or "));
}

// Which layer gave a key: 0 none, 1 config file, 2 command line.
using Given = std::map<std::string, int>;

void derive_accumulation(TrainOptions& o, int world, Given& given) {
  if (o.total_batch_tokens == 0) return;
  const int by_total = given["total-batch-tokens"], by_count = given["grad-accum"];
  if (by_count > by_total) {
    o.total_batch_tokens = 0;
    return;
  }
  const int64_t micro = o.batch_size * o.block_size * world;
  const int64_t count = o.total_batch_tokens / micro;
  if (count * micro != o.total_batch_tokens) {
    const std::string below = count > 0 ? fmt::format("{} or ", count * micro) : "";
    throw UsageError(fmt::format(
        "--total-batch-tokens (-d): {} is not a multiple of batch-size {} * block-size {} * {} rank{} = {}; use {}{}",
        o.total_batch_tokens, o.batch_size, o.block_size, world, world == 1 ? "" : "s", micro, below,
        (count + 1) * micro));
  }
  if (by_count == by_total && o.grad_accum != count)
    throw UsageError(
        fmt::format("--grad-accum {} and --total-batch-tokens {} (which needs {} micro-batches per rank) do not "
                    "agree; give one of them",
                    o.grad_accum, o.total_batch_tokens, count));
  o.grad_accum = count;
}

// Sizes and plans are computed in 64-bit integers. What the bounds in the table do not exclude are their products; those
// are taken as doubles here. 1e15: a thousand times what machines hold, with room for the factors that plans add.
void check_sizes(const TrainOptions& o, int world) {
  constexpr double most = 1e15;
  const auto real = [](int64_t n) { return static_cast<double>(n); };
  const double B = real(o.batch_size), T = real(o.block_size), C = real(o.n_embd), L = real(o.n_layer);
  const double V = real(o.vocab_size > 0 ? o.vocab_size : 50257), accum = real(o.grad_accum), W = world;
  // As models/gpt/activation_plan.cpp counts, in elements, with and without checkpointing.
  const double activations = B * T * ((L + 1) * (16 * C + 4 + real(o.n_head)) + 10 * C + V + 5);
  if (activations > most)
    throw UsageError(
        fmt::format("--batch-size {} times --block-size {} is more than any machine holds with --n-layer {} and "
                    "--n-embd {}; use smaller ones",
                    o.batch_size, o.block_size, o.n_layer, o.n_embd));
  // Units are padded to aligned shards (zero/flat_unit.h): by at most 16 elements a rank and segment, two a unit.
  const double padding = (L + 2) * 2 * W * 16;
  const double model = L * (12 * C * C + 13 * C) + (2 * V + T + 2) * C;
  const double elements = (o.plan_parameters > 0 ? real(o.plan_parameters) : model) + padding;
  if (elements > most)
    throw UsageError(
        fmt::format("--n-layer {}, --n-embd {} and --vocab-size {} on {} ranks make {:.3g} parameters, more than any "
                    "machine holds; use smaller ones",
                    o.n_layer, o.n_embd, o.vocab_size, world, elements));
  if (B * T * accum * W > most)
    throw UsageError(fmt::format("--grad-accum {} makes {:.3g} tokens a step on {} ranks; use a smaller one",
                                 o.grad_accum, B * T * accum * W, world));
  if (accum * elements > 100 * most)  // what stages 2 and 3 send in a step
    throw UsageError(fmt::format("--grad-accum {} sends {:.3g} parameters {} times a step; use a smaller one",
                                 o.grad_accum, elements, o.grad_accum));
}

void derive_and_check(TrainOptions& o, int world, Given& given) {
  if (!given["min-lr"]) o.min_lr = tenth_of(o.lr);
  if (!given["warmup-steps"]) o.warmup_steps = std::min(o.warmup_steps, o.max_steps / 10);
  if (!o.plan)
    for (const char* key : {"world", "params", "device-memory"})
      if (given[key]) throw UsageError(fmt::format("--{} belongs to a plan; add --plan, or leave it out", key));
  if (o.plan && o.plan_world > 0) world = static_cast<int>(o.plan_world);
  derive_accumulation(o, world, given);

  if (o.n_embd % o.n_head != 0)
    throw UsageError(
        fmt::format("--n-embd {} is not divisible by --n-head {}; use {}", o.n_embd, o.n_head, divisible_choices(o)));
  if (o.lr_schedule != "constant" && o.min_lr > o.lr)
    throw UsageError(
        fmt::format("--min-lr {} is above --lr {}; use at most that, or leave it out for a tenth", o.min_lr, o.lr));
  if (o.warmup_steps > o.max_steps)
    throw UsageError(
        fmt::format("--warmup-steps {} is above --max-steps {}; use at most that", o.warmup_steps, o.max_steps));
  if (o.train_data.empty() && !o.val_data.empty())
    throw UsageError(fmt::format("--val-data {} is given without --train-data; give both", o.val_data));
  if (o.out_dir.empty()) throw UsageError("--out-dir (-o): '' cannot be used; give a folder");
  check_sizes(o, world);
}

// What holds where a flag is not given: "by preset" where presets differ in it.
std::string default_of(const Flag& flag) {
  if (!flag.get) return "";
  TrainOptions options;
  const FlagTable table = train_flags(options);
  const Flag& own = *table.find(flag.key);
  const std::string value = own.get();
  for (const Preset& preset : presets()) {
    apply_preset(options, preset.name);
    if (flag.key != "preset" && own.get() != value) return "by preset";
  }
  return value;
}

std::string presets_text() {
  std::string text = "\nPresets\n";
  text += fmt::format("  {:<18}{:>8}{:>8}{:>8}{:>12}{:>12}{:>11}{:>10}{:>9}{:>9}\n", "", "n-layer", "n-head", "n-embd",
                      "block-size", "batch-size", "max-steps", "lr", "warm-up", "dropout");
  for (const Preset& p : presets())
    text += fmt::format("  {:<18}{:>8}{:>8}{:>8}{:>12}{:>12}{:>11}{:>10}{:>9}{:>9}\n", p.name, p.n_layer, p.n_head,
                        p.n_embd, p.block_size, p.batch_size, p.max_steps, p.lr, p.warmup_steps, p.dropout);
  return text;
}

std::string train_help(const std::string& program, const FlagTable& table) {
  return fmt::format(
             "{0}: trains a language model, alone or on several ranks under mpirun.\n\n"
             "  {0} --preset tiny                        a small model on text, one process\n"
             "  mpirun -np 2 {0} --preset tiny -i input.txt\n"
             "                                                  the same on two ranks, your own text\n"
             "  (more ranks than cores: mpirun --oversubscribe; cores left idle: mpirun --bind-to none)\n"
             "  {0} --preset gpt2 -i 'data/train_*.bin' -j data/val.bin -b 4 -d 16384\n"
             "  {0} --config run.conf --lr 3e-4          a file of settings, one of them changed\n\n"
             "In long flags - and _ are the same. Later layers win: defaults, preset, sizes of\n"
             "--init-from, config file, command line.\n"
             "[x]: the value if nothing is given.\n",
             program) +
         help_of(table, default_of) + presets_text() +
         "\nExit codes: 0 done, 2 usage, 3 data or checkpoint, 4 diverged, 1 anything else.\n";
}

std::string plan_help(const std::string& program, const FlagTable& table) {
  FlagTable planned;
  for (const Flag& flag : table.flags())
    if (flag.planned && flag.key != "plan") {
      planned.group(flag.group);
      Flag& copy = planned.add(flag.key, "", "");
      copy = flag;
    }
  return fmt::format(
             "{0}: memory and traffic of each ZeRO stage, for a model or a number of parameters. Nothing runs.\n\n"
             "  {0} --preset gpt2 --world 8 -b 4\n"
             "  {0} --params 7e9 --world 8 --device-memory 24GB\n\n"
             "Every flag of train may be given, so that a job is planned by the word plan in place of train; these\n"
             "change what is printed. [x]: the value if nothing is given.\n",
             program) +
         help_of(planned, default_of) + presets_text();
}

TrainOptions parse(const Arguments& arguments, int world, const SizesFrom& sizes_from, bool plan) {
  TrainOptions options;
  const FlagTable table = train_flags(options);
  const CommandLine line = read_command_line(table, arguments);
  if (line.help || line.value("version")) {
    options.print_and_exit = !line.help ? arguments.program + " " TRENCADIS_VERSION " (Trencadís)\n"
                             : plan     ? plan_help(arguments.program, table)
                                        : train_help(arguments.program, table);
    return options;
  }
  if (!line.words.empty())
    throw UsageError(fmt::format("'{0}' belongs to no flag; is it data? Then --train-data {0}", line.words.front()));
  std::vector<Setting> from_file;
  if (const std::string* config = line.value("config")) from_file = read_config(table, *config);

  // Presets first, wherever they were named: they lie below both layers.
  Given given;
  apply_preset(options, options.preset);
  const auto apply = [&](const std::vector<Setting>& settings, int layer, bool preset) {
    for (const Setting& setting : settings) {
      if (!setting.flag->set || (setting.flag->key == "preset") != preset) continue;
      setting.flag->set(setting.shown, setting.value);
      given[setting.flag->key] = layer;
    }
  };
  apply(from_file, 1, /*preset=*/true);
  apply(line.settings, 2, /*preset=*/true);
  // The sizes of weights that a training starts from lie above the preset and below what is said in words.
  for (const std::vector<Setting>& settings : {from_file, line.settings})
    for (const Setting& setting : settings)
      if (setting.flag->key == "init-from") options.init_from = setting.value;
  if (!options.init_from.empty()) sizes_from(options, options.init_from);
  apply(from_file, 1, /*preset=*/false);
  apply(line.settings, 2, /*preset=*/false);
  options.plan = options.plan || plan;
  derive_and_check(options, world, given);
  if (line.value("print-config")) options.print_and_exit = print_config(options);
  return options;
}

}  // namespace

TrainOptions parse_train(const Arguments& arguments, int world, const SizesFrom& sizes_from) {
  return parse(arguments, world, sizes_from, /*plan=*/false);
}

TrainOptions parse_plan(const Arguments& arguments, int world, const SizesFrom& sizes_from) {
  return parse(arguments, world, sizes_from, /*plan=*/true);
}

}  // namespace trencadis
