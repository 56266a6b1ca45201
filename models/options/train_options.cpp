#include "models/options/train_options.h"

#include <limits>

#include "models/options/flags.h"
#include "runtime/check.h"

namespace trencadis {

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      // name, family, V, L, H, C, T, batch, steps, lr, warm-up, dropout.
      // tiny: made for a first minute; shakespeare-char: nanoGPT's; gpt2: llm.c's 124M run; learning rates of the
      // larger ones: Brown et al. 2020, table 2.1.
      {"tiny", "gpt2", 256, 4, 4, 128, 64, 12, 2000, 3e-3, 100, 0.0},
      {"shakespeare-char", "gpt2", 256, 6, 6, 384, 256, 64, 5000, 1e-3, 100, 0.2},
      {"gpt2", "gpt2", 50257, 12, 12, 768, 1024, 4, 20000, 6e-4, 700, 0.0},
      {"gpt2-medium", "gpt2", 50257, 24, 16, 1024, 1024, 4, 60000, 3e-4, 700, 0.0},
      {"gpt2-large", "gpt2", 50257, 36, 20, 1280, 1024, 2, 60000, 2.5e-4, 700, 0.0},
      {"gpt2-xl", "gpt2", 50257, 48, 25, 1600, 1024, 1, 60000, 2e-4, 700, 0.0},
  };
  return all;
}

int64_t usual_vocab_size(const std::string& preset) {
  for (const Preset& known : presets())
    if (known.name == preset) return known.vocab_size;
  return 256;
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
    options.family = preset.family;
    options.n_layer = preset.n_layer, options.n_head = preset.n_head, options.n_embd = preset.n_embd;
    options.block_size = preset.block_size, options.batch_size = preset.batch_size;
    options.max_steps = preset.max_steps, options.warmup_steps = preset.warmup_steps;
    options.lr = preset.lr, options.min_lr = tenth_of(preset.lr), options.dropout = preset.dropout;
    return;
  }
  throw UsageError(fmt::format("{}: '{}' cannot be used; did you mean {}? Allowed: {}", shown, name, nearest, names));
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
