// GPT-2: token and position embedding, L pre-norm blocks, final norm, head (tied to the token table or its own).
// Radford et al. 2019; initialisation: normal 0.02, projections into the residual stream 0.02/sqrt(2L),
// biases 0, norms 1.
//
// The model is cut into units, each a region of the tape: every block, and the rest. Tied, the rest is one unit (the
// root: tables, final norm) with two uses, embedding and head; untied, embedding and head are two units.
#pragma once

#include <memory>

#include "autograd/region.h"
#include "layers/layers.h"

namespace trencadis {

struct GPTConfig {
  int64_t n_layer = 4, n_head = 4, n_embd = 128;
  int64_t block_size = 64;  // the longest sequence: rows of the position table
  int64_t vocab_size = 256;
  bool tied = true;
  float dropout = 0;
  bool activation_checkpointing = false;  // keep only each block's input, and run the block again in backward
};

class GPT : public Module {
 public:
  explicit GPT(const GPTConfig& config);

  const GPTConfig& config() const { return config_; }
  int64_t parameter_count();
  std::vector<Unit> units();
  // The regions of loss(), in the order of forward: what plans are made from.
  std::vector<RegionUse> uses() const;
  // Who sees the regions; null: nobody. Must outlive the graphs recorded with it.
  void set_observer(RegionObserver* observer) { observer_ = observer; }

  // Sum over valid targets of the cross-entropy, f32[1]. ids, targets i32 (B, T), T <= block_size; totals
  // as in softmax_cross_entropy.
  Variable loss(const Tensor& ids, const Tensor& targets, const ForwardState& state, const Tensor& totals = {}) const;
  // (B, T, V); call under NoGrad for inference.
  Variable logits(const Tensor& ids, const ForwardState& state) const;
  // (1, V): of the last position of one sequence, ids (1, T).
  Tensor next_token_logits(const Tensor& ids) const;

  Embedding wte, wpe;
  std::vector<std::unique_ptr<Block>> h;
  LayerNorm ln_f;
  std::unique_ptr<Linear> lm_head;  // null when tied

 private:
  Variable embed(const Tensor& ids, const ForwardState& state) const;
  Variable run_blocks(Variable x, const ForwardState& state) const;
  Variable project(const Variable& x) const;
  RegionUse embedding_use() const;
  RegionUse block_use(size_t i) const;
  RegionUse head_use(bool backward_follows) const;

  GPTConfig config_;
  Dropout embd_dropout_;
  RegionObserver* observer_ = nullptr;
};

}  // namespace trencadis
