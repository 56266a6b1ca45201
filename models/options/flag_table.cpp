#include "models/options/flag_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "runtime/check.h"

namespace trencadis {

namespace {

// Each number alone; what the products of several must not pass stands in options.cpp, check_sizes().
constexpr int64_t kMillion = 1'000'000;
constexpr int64_t kMany = int64_t{1} << 40;

[[noreturn]] void wrong_value(const std::string& shown, const std::string& value, const std::string& allowed) {
  throw UsageError(fmt::format("{}: '{}' cannot be used; allowed: {}", shown, value, allowed));
}

template <typename Number>
bool parse_number(const std::string& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

// Builds the table: one method per kind of value. `names`: the key, then aliases, with commas between.
class Table {
 public:
  std::vector<Flag> flags;

  void group(std::string name) { group_ = std::move(name); }

  void integer(const std::string& names, int64_t TrainOptions::*field, int64_t least, int64_t most, std::string help) {
    Flag& flag = add(names, "N", std::move(help));
    flag.set = [=](TrainOptions& options, const std::string& shown, const std::string& value) {
      int64_t number = 0;
      if (parse_number(value, number) && number >= least && number <= most)
        options.*field = number;
      else
        wrong_value(shown, value,
                    least == most ? fmt::format("{}", least)
                    : most < std::numeric_limits<int64_t>::max()
                        ? fmt::format("whole numbers from {} to {}", least, most)
                        : fmt::format("whole numbers from {}", least));
    };
    flag.get = [=](const TrainOptions& options) { return fmt::format("{}", options.*field); };
  }

  // least <= value, and value < below.
  void real(const std::string& names, double TrainOptions::*field, double least, double below, std::string help) {
    Flag& flag = add(names, "X", std::move(help));
    flag.set = [=](TrainOptions& options, const std::string& shown, const std::string& value) {
      double number = 0;
      if (parse_number(value, number) && std::isfinite(number) && number >= least && number < below)
        options.*field = number;
      else
        wrong_value(shown, value,
                    std::isinf(below) ? fmt::format("numbers from {}", least)
                                      : fmt::format("numbers from {} and below {}", least, below));
    };
    flag.get = [=](const TrainOptions& options) { return fmt::format("{}", options.*field); };
  }

  void text(const std::string& names, std::string meta, std::string TrainOptions::*field, std::string help) {
    Flag& flag = add(names, std::move(meta), std::move(help));
    flag.set = [=](TrainOptions& options, const std::string&, const std::string& value) { options.*field = value; };
    flag.get = [=](const TrainOptions& options) { return options.*field; };
  }

  // `allowed` as in "cosine|linear|constant".
  void choice(const std::string& names, const std::string& allowed, std::string TrainOptions::*field,
              std::string help) {
    Flag& flag = add(names, allowed, std::move(help));
    flag.set = [=](TrainOptions& options, const std::string& shown, const std::string& value) {
      const std::vector<std::string> values = split(allowed, '|');
      if (std::find(values.begin(), values.end(), value) == values.end())
        wrong_value(shown, value, fmt::format("{}", fmt::join(values, ", ")));
      options.*field = value;
    };
    flag.get = [=](const TrainOptions& options) { return options.*field; };
  }

  void on_off(const std::string& names, bool TrainOptions::*field, std::string help) {
    Flag& flag = add(names, "", std::move(help));
    flag.is_switch = true;
    flag.set = [=](TrainOptions& options, const std::string& shown, const std::string& value) {
      if (value == "on" || value == "true" || value == "True" || value == "1" || value == "yes")
        options.*field = true;
      else if (value == "off" || value == "false" || value == "False" || value == "0" || value == "no")
        options.*field = false;
      else
        wrong_value(shown, value, "on, off (also true, false, 1, 0)");
    };
    flag.get = [=](const TrainOptions& options) { return std::string(options.*field ? "on" : "off"); };
  }

  // A whole number that may be written 7e9, or with a unit of bytes: 24GB, 80GiB.
  void quantity(const std::string& names, std::string meta, int64_t TrainOptions::*field, std::string help) {
    Flag& flag = add(names, std::move(meta), std::move(help));
    flag.set = [=](TrainOptions& options, const std::string& shown, const std::string& value) {
      static const std::vector<std::pair<std::string, double>> units = {
          {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"kB", 1e3}, {"KB", 1e3},
          {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {"K", 1e3},      {"M", 1e6},  {"B", 1e9}};
      std::string digits = value;
      double unit = 1, number = 0;
      for (const auto& [name, factor] : units)
        if (digits.size() > name.size() && digits.ends_with(name)) {
          digits.resize(digits.size() - name.size());
          unit = factor;
          break;
        }
      if (!parse_number(digits, number) || !(number * unit >= 1 && number * unit <= 1e15))
        wrong_value(shown, value, "numbers from 1 to 1e15, such as 7e9, 350M, 24GB or 80GiB");
      options.*field = static_cast<int64_t>(number * unit);
    };
    flag.get = [=](const TrainOptions& options) {
      return options.*field > 0 ? fmt::format("{}", options.*field) : std::string();
    };
  }

  void command(const std::string& names, std::string meta, std::string help) {
    Flag& flag = add(names, std::move(meta), std::move(help));
    flag.is_switch = flag.meta.empty();
    flag.command_line_only = true;
  }

  Flag& add(const std::string& names, std::string meta, std::string help) {
    Flag flag;
    flag.group = group_;
    flag.names = split(names, ',');
    flag.key = flag.names.front();
    flag.meta = std::move(meta);
    flag.help = std::move(help);
    flags.push_back(std::move(flag));
    return flags.back();
  }

 private:
  std::string group_;
};

std::vector<Flag> build_table() {
  using O = TrainOptions;
  constexpr double no_bound = std::numeric_limits<double>::infinity();
  Table t;
  t.group("Model");
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.push_back(preset.name);
  Flag& preset = t.add("preset", fmt::format("{}", fmt::join(names, "|")), "sizes and schedule; see the table below");
  preset.set = [](O& options, const std::string& shown, const std::string& value) {
    apply_preset(options, value, shown);
  };
  preset.get = [](const O& options) { return options.preset; };
  t.integer("n-layer", &O::n_layer, 1, 10'000, "transformer blocks");
  t.integer("n-head", &O::n_head, 1, kMillion, "attention heads; must divide n-embd");
  t.integer("n-embd", &O::n_embd, 1, kMillion, "channels");
  t.integer("block-size,seq-len,t", &O::block_size, 1, kMillion, "tokens in a sequence");
  t.integer("vocab-size", &O::vocab_size, 0, std::numeric_limits<int32_t>::max(),
            "0: by the data, 256 for text and 50257 for .bin");
  t.on_off("untied", &O::untied, "a head of its own, apart from the embedding table");
  t.real("dropout", &O::dropout, 0, 1, "share of values dropped in training");

  t.group("Data and batch");
  t.text("train-data,i", "FILES", &O::train_data,
         "text, llm.c .bin or plain uint16 .bin; several as a quoted pattern: 'data/*.bin'. Default: "
         "data/shakespeare.txt if quickstart.sh fetched it, else this project's sources");
  t.text("val-data,j", "FILES", &O::val_data,
         "default: the last tenth of the training data, which is then not trained on");
  t.integer("batch-size,b", &O::batch_size, 1, kMillion, "sequences per rank and micro-batch");
  t.integer(
      "grad-accum,gradient-accumulation-steps", &O::grad_accum, 1, kMillion,
      "micro-batches per step and rank. nanoGPT's flag of this name counts over all ranks: divide its value by the "
      "number of ranks");
  t.integer(
      "total-batch-tokens,d", &O::total_batch_tokens, 0, kMany,
      "tokens per step over all ranks, instead of grad-accum; must be a multiple of batch-size * block-size * ranks. "
      "0: not given");

  t.group("Optimisation (AdamW)");
  t.integer("max-steps,max-iters,x", &O::max_steps, 1, kMany, "steps to train");
  t.real("lr,learning-rate,l", &O::lr, 0, no_bound, "highest learning rate");
  t.real("min-lr", &O::min_lr, 0, no_bound, "learning rate at the end; if not given, a tenth of lr");
  t.integer("warmup-steps,warmup-iters,u", &O::warmup_steps, 0, kMany,
            "steps of linear rise; if not given, the preset's, but at most a tenth of max-steps");
  t.choice("lr-schedule", "cosine|linear|constant", &O::lr_schedule, "from lr to min-lr after the warm-up");
  t.real("weight-decay,c", &O::weight_decay, 0, no_bound, "for matrices only");
  t.real("beta1", &O::beta1, 0, 1, "decay of the first moment");
  t.real("beta2", &O::beta2, 0, 1, "decay of the second moment");
  t.real("grad-clip", &O::grad_clip, 0, no_bound, "largest gradient norm; 0: no clipping");

  t.group("Evaluation and samples");
  t.integer("eval-interval,v", &O::eval_interval, 0, kMany, "steps between validations; 0: only at the end");
  t.integer("eval-steps,eval-iters", &O::eval_steps, 0, kMany,
            "micro-batches per rank in a validation; 0: no validation");
  t.integer("sample-interval,s", &O::sample_interval, 0, kMany, "steps between samples; 0: only at the end");
  t.integer("sample-tokens", &O::sample_tokens, 0, kMillion, "length of a sample; 0: no samples");
  t.text("prompt", "TEXT", &O::prompt, "what a sample goes on from; for .bin data token numbers: '15496 995'");
  t.real("temperature", &O::temperature, 0, no_bound, "of sampling; 0: always the likeliest token");
  t.integer("top-k", &O::top_k, 0, kMany, "sample from the k likeliest tokens; 0: from all");

  t.group("Sharding and memory");
  t.integer("zero-stage,z", &O::zero_stage, 0, kHighestZeroStage,
            "what is sharded over the ranks. 0: nothing (DDP); 1: the optimizer's state; 2: gradients too; 3: "
            "parameters too");
  t.integer("prefetch", &O::prefetch, 0, 1000,
            "units that stage 3 gathers ahead. 0: in no stage does a collective overlap compute");
  t.on_off("reshard-after-forward", &O::reshard_after_forward,
           "off: stage 3 keeps parameters from forward to backward, which sends less and needs more memory");
  t.on_off("activation-checkpointing,r", &O::activation_checkpointing,
           "recompute each block in backward: less memory, about a third more time");

  t.group("Planning");
  t.on_off("plan", &O::plan, "print memory and traffic of each stage for this model, and exit");
  t.integer("world", &O::plan_world, 0, kMillion, "ranks to plan for; 0: those that run");
  t.quantity("params", "N", &O::plan_parameters, "plan for a bare number of parameters: 7e9, 350M");
  t.quantity("device-memory", "SIZE", &O::plan_device_memory,
             "what a rank has: 24GB, 80GiB; names the stage that fits");
  for (Flag& flag : t.flags)
    if (flag.group == "Planning") flag.command_line_only = true;

  t.group("Run");
  t.choice("device", "auto|cpu|cuda", &O::device, "where to compute; auto: on a GPU where there is one");
  t.choice("attention", "auto|native|cudnn", &O::attention,
           "cuda: whose attention kernels; auto: cuDNN's in bf16 where they can be used, else this project's");
  t.on_off("tf32", &O::tf32, "cuda: products on tensor cores, which round their factors to 10 bits");
  t.integer("threads", &O::threads, 0, 10'000, "compute threads per rank; 0: its share of the cores it may use");
  t.integer("seed", &O::seed, 0, std::numeric_limits<int64_t>::max(), "of weights, order of data, dropout and samples");
  t.text("out-dir,o", "DIR", &O::out_dir, "where the run writes");
  Flag& save =
      t.add("save-interval,n", "STEPS|Nmin|off",
            "a checkpoint every so many steps or minutes, and at the end; 0: only at the end; off: none. Saved "
            "in out-dir/step-XXXXXXXX");
  save.set = [](O& options, const std::string& shown, const std::string& value) {
    int64_t steps = 0;
    double minutes = 0;
    const bool by_time = value.ends_with("min") && parse_number(value.substr(0, value.size() - 3), minutes) &&
                         minutes > 0 && minutes < 1e6;
    if (!by_time && value != "off" && !(parse_number(value, steps) && steps >= 0 && steps <= kMany))
      wrong_value(shown, value, "a number of steps, minutes such as 15min, off");
    options.save_interval = value;
  };
  save.get = [](const O& options) { return options.save_interval; };
  t.integer("keep-last", &O::keep_last, 0, kMany, "older checkpoints of the run are removed; 0: all are kept");
  Flag& resume =
      t.add("resume,y", "PATH|auto",
            "go on from a checkpoint, or from the newest in a run's folder, on any number of ranks and in any "
            "stage. auto (or 1): from the newest in out-dir, or from the start where there is none");
  resume.set = [](O& options, const std::string&, const std::string& value) {
    options.resume = value == "1" ? "auto" : value == "0" || value == "off" ? "" : value;
  };
  resume.get = [](const O& options) { return options.resume; };
  t.text(
      "init-from", "DIR", &O::init_from,
      "start a new training from these weights: a Hugging Face folder of GPT-2 (config.json, model.safetensors), or a "
      "checkpoint. Gives the model's sizes, too");
  t.text("export", "DIR", &O::export_dir, "at the end, write the model as a Hugging Face folder");
  t.text("metrics", "FILE", &O::metrics, "a JSON object per step; 'off': none. Default: metrics.jsonl in out-dir");
  t.text("report", "FILE", &O::report,
         "a page of pictures of the run; 'off': none. Default: report.html in out-dir. Later: train_gpt report DIR...");
  t.text("trace", "FILE", &O::trace, "what ran when on all ranks, for ui.perfetto.dev; slows a run by under 2 %");
  t.integer("timeout", &O::timeout, 1, kMany, "seconds after which a collective that is stuck ends the job");
  t.on_off("profile", &O::profile, "at the end, a table of where the time went, kernel by kernel (CPU)");
  t.choice("progress", "auto|bar|plain|off", &O::progress, "how steps are shown");
  t.on_off("digest", &O::digest, "at the end, print a checksum of all parameters");
  t.command("config", "FILE", "read 'key = value' lines, keys as these flags; # begins a comment. Flags win");
  t.command("print-config", "", "print what would be run, as a config file, and exit");
  t.command("version", "", "print the version and exit");
  t.command("help,h", "", "print this and exit");
  return std::move(t.flags);
}

}  // namespace

std::string Flag::title() const {
  std::string others;
  for (const std::string& name : names)
    if (name != key) others += (others.empty() ? "-" : ", -") + std::string(name.size() > 1, '-') + name;
  return others.empty() ? fmt::format("--{}", key) : fmt::format("--{} ({})", key, others);
}

const std::vector<Flag>& flag_table() {
  static const std::vector<Flag> table = build_table();
  return table;
}

const Flag* find_flag(std::string_view name) {
  std::string dashed(name);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  for (const Flag& flag : flag_table())
    if (std::find(flag.names.begin(), flag.names.end(), dashed) != flag.names.end()) return &flag;
  return nullptr;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  // Optimal string alignment: rows of the usual table, two behind for the swap.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string suggestion(std::string_view wrong, bool dashes) {
  std::string dashed(wrong);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  std::string nearest;
  size_t least = std::max<size_t>(2, dashed.size() / 3) + 1;  // farther names are other words
  for (const Flag& flag : flag_table())
    for (const std::string& name : flag.names)
      if (const size_t distance = edit_distance(dashed, name);
          name.size() > 1 && distance < least && (dashes || !flag.command_line_only)) {
        least = distance;
        nearest = name;
      }
  if (nearest.empty()) return "; --help lists all there are";
  return fmt::format("; did you mean {}{}?", dashes ? "--" : "", nearest);
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      // name, L, H, C, T, batch, steps, lr, warm-up, dropout.
      // tiny: made for a first minute; shakespeare-char: nanoGPT's; gpt2: llm.c's 124M run; learning rates of the
      // larger ones: Brown et al. 2020, table 2.1.
      {"tiny", 4, 4, 128, 64, 12, 2000, 3e-3, 100, 0.0},
      {"shakespeare-char", 6, 6, 384, 256, 64, 5000, 1e-3, 100, 0.2},
      {"gpt2", 12, 12, 768, 1024, 4, 20000, 6e-4, 700, 0.0},
      {"gpt2-medium", 24, 16, 1024, 1024, 4, 60000, 3e-4, 700, 0.0},
      {"gpt2-large", 36, 20, 1280, 1024, 2, 60000, 2.5e-4, 700, 0.0},
      {"gpt2-xl", 48, 25, 1600, 1024, 1, 60000, 2e-4, 700, 0.0},
  };
  return all;
}

double tenth_of(double lr) {
  double tenth = 0;
  parse_number(fmt::format("{:.12g}", lr * 0.1), tenth);
  return tenth;
}

void apply_preset(TrainOptions& options, const std::string& name, const std::string& shown) {
  std::string nearest, names;
  size_t least = std::numeric_limits<size_t>::max();
  for (const Preset& preset : presets()) {
    if (const size_t distance = edit_distance(name, preset.name); distance < least)
      least = distance, nearest = preset.name;
    names += (names.empty() ? "" : ", ") + preset.name;
    if (preset.name != name) continue;
    options.preset = name;
    options.n_layer = preset.n_layer, options.n_head = preset.n_head, options.n_embd = preset.n_embd;
    options.block_size = preset.block_size, options.batch_size = preset.batch_size;
    options.max_steps = preset.max_steps, options.warmup_steps = preset.warmup_steps;
    options.lr = preset.lr, options.min_lr = tenth_of(preset.lr), options.dropout = preset.dropout;
    return;
  }
  throw UsageError(fmt::format("{}: '{}' cannot be used; did you mean {}? Allowed: {}", shown, name, nearest, names));
}

}  // namespace trencadis
