// LanguageModel: what training, planning, generating and the folders of other programs need of a causal language model,
// whatever its family. Nobody above models/<family> includes a model class: they see this.
//
// A model is cut into units (zero/ shards them), each used in regions of the tape, which an observer sees: it is a
// UnitModule.
#pragma once

#include <string>
#include <vector>

#include "layers/unit_module.h"

namespace trencadis {

// Which family, and the sizes that it leaves open: data, as flags, folders and checkpoints hold it.
struct ModelConfig {
  std::string family = "gpt2";  // models/families.h
  int64_t n_layer = 4, n_head = 4, n_embd = 128;
  int64_t block_size = 64;  // the longest sequence
  int64_t vocab_size = 256;
  bool tied = true;  // the head is the embedding table
  float dropout = 0;
  bool activation_checkpointing = false;  // keep only each block's input, and run the block again in backward
};

class LanguageModel : public UnitModule {
 public:
  explicit LanguageModel(const ModelConfig& config) : config_(config) {}
  const ModelConfig& config() const { return config_; }
  int64_t parameter_count();

  // The regions of loss(), in the order of forward: what plans are made from.
  virtual std::vector<RegionUse> uses() const = 0;

  // Sum over valid targets of the cross-entropy, f32[1]. ids, targets i32 (B, T), T <= block_size; totals
  // as in softmax_cross_entropy.
  virtual Variable loss(const Tensor& ids, const Tensor& targets, const ForwardState& state,
                        const Tensor& totals = {}) const = 0;
  // (B, T, V); call under NoGrad for inference.
  virtual Variable logits(const Tensor& ids, const ForwardState& state) const = 0;
  // (1, V): of the last position of one sequence, ids (1, T).
  virtual Tensor next_token_logits(const Tensor& ids) const = 0;

  // Peak bytes of the activations of one micro-batch of B sequences of T tokens, with checkpointing or without: a
  // prediction from the sizes alone.
  virtual int64_t activation_bytes(int64_t B, int64_t T, bool checkpointing) const = 0;

 private:
  const ModelConfig config_;
};

inline int64_t LanguageModel::parameter_count() {
  int64_t count = 0;
  for (const Parameter* parameter : parameters()) count += parameter->size();
  return count;
}

}  // namespace trencadis
