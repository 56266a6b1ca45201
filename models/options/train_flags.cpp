#include "models/options/train_flags.h"

#include <limits>

#include "runtime/check.h"

namespace trencadis {

namespace {

// Each number alone; what the products of several must not pass stands in options.cpp, check_sizes().
constexpr int64_t kMillion = 1'000'000;
constexpr int64_t kMany = int64_t{1} << 40;

}  // namespace

FlagTable train_flags(TrainOptions& o) {
  constexpr double no_bound = std::numeric_limits<double>::infinity();
  FlagTable t;
  t.group("Model", /*planned=*/true);
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.push_back(preset.name);
  Flag& preset = t.add("preset", fmt::format("{}", fmt::join(names, "|")), "sizes and schedule; see the table below");
  preset.set = [&o](const std::string& shown, const std::string& value) { apply_preset(o, value, shown); };
  preset.get = [&o] { return o.preset; };
  t.integer("n-layer", o.n_layer, 1, 10'000, "transformer blocks");
  t.integer("n-head", o.n_head, 1, kMillion, "attention heads; must divide n-embd");
  t.integer("n-embd", o.n_embd, 1, kMillion, "channels");
  t.integer("block-size,seq-len,t", o.block_size, 1, kMillion, "tokens in a sequence");
  t.integer("vocab-size", o.vocab_size, 0, std::numeric_limits<int32_t>::max(),
            "0: by the data, 256 for text and 50257 for .bin");
  t.on_off("untied", o.untied, "a head of its own, apart from the embedding table");
  t.real("dropout", o.dropout, 0, 1, "share of values dropped in training").planned = false;

  t.group("Data and batch");
  t.text("train-data,i", "FILES", o.train_data,
         "text, llm.c .bin or plain .bin (uint16, or see token-bytes); several as a quoted pattern: 'data/*.bin'. "
         "Default: data/shakespeare.txt if quickstart.sh fetched it, else this project's sources");
  t.text("val-data,j", "FILES", o.val_data,
         "default: the last tenth of the training data, which is then not trained on");
  t.choice("token-bytes", "auto|2|4", o.token_bytes,
           "width of the tokens in a .bin without header. auto: 2, or 4 where vocab-size does not fit; what then seems "
           "to be wider is refused");
  t.integer("batch-size,b", o.batch_size, 1, kMillion, "sequences per rank and micro-batch").planned = true;
  t.integer(
       "grad-accum,gradient-accumulation-steps", o.grad_accum, 1, kMillion,
       "micro-batches per step and rank. nanoGPT's flag of this name counts over all ranks: divide its value by the "
       "number of ranks")
      .planned = true;
  t.integer(
       "total-batch-tokens,d", o.total_batch_tokens, 0, kMany,
       "tokens per step over all ranks, instead of grad-accum; must be a multiple of batch-size * block-size * ranks. "
       "0: not given")
      .planned = true;

  t.group("Optimisation (AdamW)");
  t.integer("max-steps,max-iters,x", o.max_steps, 1, kMany, "steps to train");
  t.real("lr,learning-rate,l", o.lr, 0, no_bound, "highest learning rate");
  t.real("min-lr", o.min_lr, 0, no_bound, "learning rate at the end; if not given, a tenth of lr");
  t.integer("warmup-steps,warmup-iters,u", o.warmup_steps, 0, kMany,
            "steps of linear rise; if not given, the preset's, but at most a tenth of max-steps");
  t.choice("lr-schedule", "cosine|linear|constant", o.lr_schedule, "from lr to min-lr after the warm-up");
  t.real("weight-decay,c", o.weight_decay, 0, no_bound, "for matrices only");
  t.real("beta1", o.beta1, 0, 1, "decay of the first moment");
  t.real("beta2", o.beta2, 0, 1, "decay of the second moment");
  t.real("grad-clip", o.grad_clip, 0, no_bound, "largest gradient norm; 0: no clipping");

  t.group("Evaluation and samples");
  t.integer("eval-interval,v", o.eval_interval, 0, kMany, "steps between validations; 0: only at the end");
  t.integer("eval-steps,eval-iters", o.eval_steps, 0, kMany,
            "micro-batches per rank in a validation; 0: no validation");
  t.integer("sample-interval,s", o.sample_interval, 0, kMany, "steps between samples; 0: only at the end");
  t.integer("sample-tokens", o.sample_tokens, 0, kMillion, "length of a sample; 0: no samples");
  t.text("prompt", "TEXT", o.prompt, "what a sample goes on from; for .bin data token numbers: '15496 995'");
  t.real("temperature", o.temperature, 0, no_bound, "of sampling; 0: always the likeliest token");
  t.integer("top-k", o.top_k, 0, kMany, "sample from the k likeliest tokens; 0: from all");

  t.group("Sharding and memory");
  t.integer("zero-stage,z", o.zero_stage, 0, kHighestZeroStage,
            "what is sharded over the ranks. 0: nothing (DDP); 1: the optimizer's state; 2: gradients too; 3: "
            "parameters too");
  t.integer("prefetch", o.prefetch, 0, 1000,
            "units that stage 3 gathers ahead. 0: in no stage does a collective overlap compute")
      .planned = true;
  t.on_off("reshard-after-forward", o.reshard_after_forward,
           "off: stage 3 keeps parameters from forward to backward, which sends less and needs more memory")
      .planned = true;
  t.on_off("activation-checkpointing,r", o.activation_checkpointing,
           "recompute each block in backward: less memory, about a third more time")
      .planned = true;

  t.group("Planning", /*planned=*/true);
  t.on_off("plan", o.plan, "print memory and traffic of each stage for this model, and exit").command_line_only = true;
  t.integer("world", o.plan_world, 0, kMillion, "ranks to plan for; 0: those that run").command_line_only = true;
  t.quantity("params", "N", o.plan_parameters, "plan for a bare number of parameters: 7e9, 350M").command_line_only =
      true;
  t.quantity("device-memory", "SIZE", o.plan_device_memory, "what a rank has: 24GB, 80GiB; names the stage that fits")
      .command_line_only = true;

  t.group("Run");
  t.choice("device", "auto|cpu|cuda", o.device, "where to compute; auto: on a GPU where there is one");
  t.choice("attention", "auto|native|cudnn", o.attention,
           "cuda: whose attention kernels; auto: cuDNN's in bf16 where they can be used, else this project's");
  t.on_off("tf32", o.tf32, "cuda: products on tensor cores, which round their factors to 10 bits");
  t.integer("threads", o.threads, 0, 10'000, "compute threads per rank; 0: its share of the cores it may use");
  t.integer("seed", o.seed, 0, std::numeric_limits<int64_t>::max(), "of weights, order of data, dropout and samples");
  t.text("out-dir,o", "DIR", o.out_dir, "where the run writes");
  Flag& save =
      t.add("save-interval,n", "STEPS|Nmin|off",
            "a checkpoint every so many steps or minutes, and at the end; 0: only at the end; off: none. Saved "
            "in out-dir/step-XXXXXXXX");
  save.set = [&o](const std::string& shown, const std::string& value) {
    int64_t steps = 0;
    double minutes = 0;
    const bool by_time = value.ends_with("min") && parse_number(value.substr(0, value.size() - 3), minutes) &&
                         minutes > 0 && minutes < 1e6;
    if (!by_time && value != "off" && !(parse_number(value, steps) && steps >= 0 && steps <= kMany))
      wrong_value(shown, value, "a number of steps, minutes such as 15min, off");
    o.save_interval = value;
  };
  save.get = [&o] { return o.save_interval; };
  t.integer("keep-last", o.keep_last, 0, kMany, "older checkpoints of the run are removed; 0: all are kept");
  Flag& resume =
      t.add("resume,y", "PATH|auto",
            "go on from a checkpoint, or from the newest in a run's folder, on any number of ranks and in any "
            "stage. auto (or 1): from the newest in out-dir, or from the start where there is none");
  resume.set = [&o](const std::string&, const std::string& value) {
    o.resume = value == "1" ? "auto" : value == "0" || value == "off" ? "" : value;
  };
  resume.get = [&o] { return o.resume; };
  t.text("init-from", "DIR", o.init_from,
         "start a new training from these weights: a Hugging Face folder (config.json, model.safetensors), or a "
         "checkpoint. Gives the model's sizes, too");
  t.text("export", "DIR", o.export_dir, "at the end, write the model as a Hugging Face folder");
  t.text("metrics", "FILE", o.metrics, "a JSON object per step; 'off': none. Default: metrics.jsonl in out-dir");
  t.text("report", "FILE", o.report,
         "a page of pictures of the run; 'off': none. Default: report.html in out-dir. Later: trencadis report DIR...");
  t.text("trace", "FILE", o.trace, "what ran when on all ranks, for ui.perfetto.dev; slows a run by under 2 %");
  t.integer("timeout", o.timeout, 1, kMany, "seconds after which a collective that is stuck ends the job");
  t.on_off("profile", o.profile, "at the end, a table of where the time went, kernel by kernel (CPU)");
  t.choice("progress", "auto|bar|plain|off", o.progress, "how steps are shown");
  t.on_off("digest", o.digest, "at the end, print a checksum of all parameters");
  t.command("config", "FILE", "read 'key = value' lines, keys as these flags; # begins a comment. Flags win").planned =
      true;
  t.command("print-config", "", "print what would be run, as a config file, and exit").planned = true;
  t.command("version", "", "print the version and exit");
  t.command("help,h", "", "print this and exit").planned = true;
  return t;
}

std::vector<std::pair<std::string, std::string>> settings_of(TrainOptions options) {
  std::vector<std::pair<std::string, std::string>> settings;
  const FlagTable table = train_flags(options);
  for (const Flag& flag : table.flags())
    if (!flag.command_line_only && flag.get) settings.emplace_back(flag.key, flag.get());
  return settings;
}

std::string setting_of(TrainOptions options, const std::string& key) { return train_flags(options).find(key)->get(); }

}  // namespace trencadis
