// TrainOptions: everything a run is told, and how it is read from command line, config file and presets.
//
// Why layers: defaults < preset < sizes of --init-from < config file < command line. Each layer sets only what it names, so that a preset
// changes a model's size without the user repeating it, and a flag typed by hand always wins. A preset may be named in
// either of the last two.
//
// Invariants a change must keep:
// - A flag exists once what it does is built, and stands in one table (flag_table.cpp): parsing, config file, --help,
//   --print-config and fingerprint() come from it.
// - A TrainOptions that parse_options() returned is consistent: later code need not check it again. What depends on the
//   data (the vocabulary, the length of the text) is checked where the data is opened.
// - Every error is a UsageError (exit 2) that names flag, value and what is allowed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace trencadis {

// Stages that are built.
inline constexpr int64_t kHighestZeroStage = 3;

struct TrainOptions {
  // Model
  std::string preset = "tiny";
  int64_t n_layer = 4, n_head = 4, n_embd = 128, block_size = 64;
  int64_t vocab_size = 0;  // 0: the data's, 256 for text and 50257 for .bin
  bool untied = false;
  double dropout = 0;

  // Data
  std::string train_data, val_data;  // patterns; empty: see open_dataset()
  int64_t batch_size = 12;           // sequences per rank and micro-batch
  int64_t grad_accum = 1;            // micro-batches per step and rank
  int64_t total_batch_tokens = 0;    // tokens per step over all ranks; 0: follows from the others

  // Optimisation
  int64_t max_steps = 2000;
  double lr = 3e-3, min_lr = 3e-4;
  int64_t warmup_steps = 100;
  std::string lr_schedule = "cosine";  // cosine, linear, constant
  double weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95;
  double grad_clip = 1.0;  // 0: off

  // Evaluation and samples
  int64_t eval_interval = 250;  // steps; 0: only at the end
  int64_t eval_steps = 20;      // micro-batches per rank; 0: never
  int64_t sample_interval = 0;  // steps; 0: only at the end
  int64_t sample_tokens = 256;  // 0: never
  std::string prompt;
  double temperature = 0.8;  // 0: always the likeliest
  int64_t top_k = 40;        // 0: all

  // Sharding and memory
  int64_t zero_stage = 0;
  int64_t prefetch = 1;               // 0: no collective overlaps compute
  bool reshard_after_forward = true;  // stage 3: free parameters between forward and backward
  bool activation_checkpointing = false;

  // Run
  std::string device = "auto";     // auto, cpu, cuda
  std::string attention = "auto";  // auto, native, cudnn
  bool tf32 = false;
  int64_t threads = 0;  // per rank; 0: the rank's share of the cores it may use
  int64_t seed = 1337;
  std::string out_dir = "out";
  std::string save_interval = "15min";  // "15min", steps, or "off"
  int64_t keep_last = 2;                // checkpoints of this training; 0: all
  std::string resume;                   // "auto", a path, or empty: from the start
  std::string init_from;   // Hugging Face's folder or a checkpoint, whose weights a new training starts from
  std::string export_dir;  // Hugging Face's folder to write at the end; empty: none
  std::string metrics;     // empty: out_dir/metrics.jsonl; "off": none
  std::string report;      // empty: out_dir/report.html; "off": none
  std::string trace;       // empty: none
  int64_t timeout = 300;
  std::string progress = "auto";  // auto, bar, plain, off
  bool digest = false;
  bool profile = false;

  // --plan: print what each stage would cost, and exit
  bool plan = false;
  int64_t plan_world = 0;          // ranks to plan for; 0: those that run
  int64_t plan_parameters = 0;     // a bare number of parameters; 0: the model
  int64_t plan_device_memory = 0;  // bytes of a rank; 0: not given

  // Not empty: what --help, --version or --print-config asked for. Print it and exit 0; the rest is
  // then not to be used.
  std::string print_and_exit;

  // Where metrics go; empty: nowhere.
  std::string metrics_path() const;
  std::string report_path() const;  // likewise
  // What save_interval says; 0: not by steps, not by time.
  int64_t save_steps() const;
  double save_seconds() const;
  int64_t tokens_per_step(int64_t world) const { return batch_size * block_size * grad_accum * world; }
};

// Sets the sizes of the weights that --init-from names.
using SizesFrom = std::function<void(TrainOptions& options, const std::string& init_from)>;

// `world` is the number of ranks, which --total-batch-tokens is divided by.
TrainOptions parse_options(int argc, const char* const* argv, int world, const SizesFrom& sizes_from);

// Every key and its value, as text.
std::vector<std::pair<std::string, std::string>> settings_of(const TrainOptions& options);
std::string setting_of(const TrainOptions& options, const std::string& key);

// Every key as `key = value`, to be read again with --config.
std::string print_config(const TrainOptions& options);

// One "key=value" line per key. Equal on all ranks, or the run must not start.
std::string fingerprint(const TrainOptions& options);

// "batch-size is 12 on rank 0 and 16 on rank 3; ..." for each line that differs, for the error on all ranks.
std::string fingerprint_difference(const std::string& a, int rank_a, const std::string& b, int rank_b);

}  // namespace trencadis
