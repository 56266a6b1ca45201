// Reads the layers of options.h, derives what was not given, and checks what belongs together. CLI11 takes the command
// line apart (clusters, -b4, --b=4); which flags there are and what their values mean comes from flag_table.cpp.
#include "models/options/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "models/options/flag_table.h"
#include "runtime/check.h"

namespace trencadis {

namespace {

struct CommandLine {
  std::vector<Setting> settings;
  std::string config;
  bool help = false, version = false, print_config = false;
};

bool is_long(const std::string& argument) { return argument.size() > 2 && argument.starts_with("--"); }

// Makes "--batch_size=4" to "--batch-size", "4": CLI11 knows neither that '_' is '-' nor an empty value behind '='.
// What follows a flag that takes a value is left alone, so that a prompt may begin with dashes.
std::vector<std::string> normalised(int argc, const char* const* argv, bool& help) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (!is_long(argument) && (argument.size() < 2 || argument[0] != '-')) {
      arguments.push_back(std::move(argument));
      continue;
    }
    const size_t equals = is_long(argument) ? argument.find('=') : std::string::npos;
    std::string name = argument.substr(0, equals);
    if (is_long(argument)) std::replace(name.begin() + 2, name.end(), '_', '-');
    const Flag* flag =
        is_long(argument) || argument.size() == 2 ? find_flag(name.substr(is_long(name) ? 2 : 1)) : nullptr;
    if (!is_long(argument) && argument.size() > 2 && argument[1] != '-' && find_flag(argument.substr(1)))
      throw UsageError(fmt::format("{}: long flags have two dashes: -{}", argument, argument));
    if (flag && flag->key == "help") help = true;
    const bool takes_value = flag && !flag->is_switch;
    if (equals != std::string::npos && takes_value) {
      arguments.push_back(name);
      arguments.push_back(argument.substr(equals + 1));
      continue;
    }
    if (takes_value && i + 1 == argc)
      throw UsageError(fmt::format("{}: a value is missing; it takes {}", flag->title(), flag->meta));
    arguments.push_back(equals == std::string::npos ? name : name + argument.substr(equals));
    if (takes_value) arguments.emplace_back(argv[++i]);
  }
  return arguments;
}

[[noreturn]] void unknown_argument(const std::string& argument) {
  if (is_long(argument)) {
    const std::string name = argument.substr(2, argument.find('=') - 2);
    throw UsageError(fmt::format("unknown flag --{}{}", name, suggestion(name, true)));
  }
  if (argument.starts_with('-')) throw UsageError(fmt::format("unknown flag {}; --help lists all there are", argument));
  throw UsageError(fmt::format("'{}' belongs to no flag; is it data? Then --train-data {}", argument, argument));
}

CommandLine read_command_line(int argc, const char* const* argv) {
  CommandLine line;
  std::vector<std::string> arguments = normalised(argc, argv, line.help);
  if (line.help) return line;  // whatever else is there, right or wrong

  CLI::App app;
  app.set_help_flag("");
  app.allow_extras();
  for (const Flag& flag : flag_table()) {
    std::string names;
    for (const std::string& name : flag.names)
      names += (names.empty() ? "-" : ",-") + std::string(name.size() > 1, '-') + name;
    const auto store = [&line, &flag](const std::string& value) {
      if (flag.key == "config")
        line.config = value;
      else if (flag.key == "version")
        line.version = true;
      else if (flag.key == "print-config")
        line.print_config = true;
      else if (flag.set)
        line.settings.push_back({&flag, flag.title(), value.empty() && flag.is_switch ? "on" : value});
    };
    // Given twice, the last counts: scripts append flags to those of others.
    CLI::Option* option = app.add_option_function<std::string>(names, store)->take_last();
    if (flag.is_switch) option->expected(0, flag.command_line_only ? 0 : 1);
  }
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}; --help shows how flags are written", error.what()));
  }
  if (const std::vector<std::string> rest = app.remaining(); !rest.empty()) unknown_argument(rest.front());
  return line;
}

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
  // As activation_plan.cpp counts, in elements, with and without checkpointing.
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

}  // namespace

TrainOptions parse_options(int argc, const char* const* argv, int world, const SizesFrom& sizes_from) {
  const CommandLine line = read_command_line(argc, argv);
  TrainOptions options;
  if (line.help || line.version) {
    options.print_and_exit = line.help ? help_text() : "train_gpt " TRENCADIS_VERSION " (Trencadís)\n";
    return options;
  }
  std::vector<Setting> from_file;
  if (!line.config.empty()) from_file = read_config(line.config);

  // Presets first, wherever they were named: they lie below both layers.
  Given given;
  apply_preset(options, options.preset);
  const auto apply = [&](const std::vector<Setting>& settings, int layer, bool preset) {
    for (const Setting& setting : settings) {
      if ((setting.flag->key == "preset") != preset) continue;
      setting.flag->set(options, setting.shown, setting.value);
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
  derive_and_check(options, world, given);
  if (line.print_config) options.print_and_exit = print_config(options);
  return options;
}

int64_t TrainOptions::save_steps() const {
  return save_interval == "off" || save_interval.ends_with("min") ? 0 : std::stoll(save_interval);
}

double TrainOptions::save_seconds() const { return save_interval.ends_with("min") ? 60 * std::stod(save_interval) : 0; }

std::string TrainOptions::metrics_path() const {
  if (metrics == "off") return "";
  return metrics.empty() ? out_dir + "/metrics.jsonl" : metrics;
}

std::string TrainOptions::report_path() const {
  if (report == "off") return "";
  return report.empty() ? out_dir + "/report.html" : report;
}

}  // namespace trencadis
