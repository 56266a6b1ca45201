// TrainOptions: everything a run is told, and the presets. Data: how it is read stands in options.h beside it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trencadis {

// Stages that are built.
inline constexpr int64_t kHighestZeroStage = 3;

struct TrainOptions {
  // Model
  std::string preset = "tiny";
  std::string family = "gpt2";  // models/families.h; the preset's, or that of the weights of --init-from
  int64_t n_layer = 4, n_head = 4, n_embd = 128, block_size = 64;
  int64_t vocab_size = 0;  // 0: the data's, 256 for text and 50257 for .bin
  bool untied = false;
  double dropout = 0;

  // Data
  std::string train_data, val_data;  // patterns; empty: see open_dataset()
  std::string token_bytes = "auto";  // of .bin without header: auto, 2, 4
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
  std::string init_from;   // a Hugging Face folder or a checkpoint, whose weights a new training starts from
  std::string export_dir;  // a Hugging Face folder to write at the end; empty: none
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
  int64_t plain_token_bytes() const { return token_bytes == "2" ? 2 : token_bytes == "4" ? 4 : 0; }  // 0: auto
  int64_t tokens_per_step(int64_t world) const { return batch_size * block_size * grad_accum * world; }
};

// What a name stands for. Each value is a default below all that is said in words.
struct Preset {
  std::string name, family;
  int64_t vocab_size;  // of the data it was made for: what a plan assumes, a run takes its own data's
  int64_t n_layer, n_head, n_embd, block_size;
  int64_t batch_size, max_steps;
  double lr;
  int64_t warmup_steps;
  double dropout;
};

const std::vector<Preset>& presets();
// `shown` names the flag or key in the UsageError where there is no such preset.
void apply_preset(TrainOptions& options, const std::string& name, const std::string& shown = "--preset");
int64_t usual_vocab_size(const std::string& preset);
double tenth_of(double lr);  // min-lr where it is not given; rounded so that a tenth of 6e-4 prints as 6e-05

}  // namespace trencadis
