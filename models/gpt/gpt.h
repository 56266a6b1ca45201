// GPT-2: token and position embedding, L pre-norm blocks, final norm, head (tied to the token table or its own).
// Radford et al. 2019; initialisation: normal 0.02, projections into the residual stream 0.02/sqrt(2L),
// biases 0, norms 1.
//
// The model is cut into units, each a region of the tape: every block, and the rest. Tied, the rest is one unit (the
// root: tables, final norm) with two uses, embedding and head; untied, embedding and head are two units.
#pragma once

#include <memory>

#include "layers/layers.h"
#include "models/language_model.h"

namespace trencadis {

class GPT : public LanguageModel {
 public:
  explicit GPT(const ModelConfig& config);

  std::vector<RegionUse> uses() const override;
  Variable loss(const Tensor& ids, const Tensor& targets, const ForwardState& state,
                const Tensor& totals = {}) const override;
  Variable logits(const Tensor& ids, const ForwardState& state) const override;
  Tensor next_token_logits(const Tensor& ids) const override;
  int64_t activation_bytes(int64_t B, int64_t T, bool checkpointing) const override;

  Embedding wte, wpe;
  std::vector<std::unique_ptr<Block>> h;
  LayerNorm ln_f;
  std::unique_ptr<Linear> lm_head;  // null when tied

 private:
  Variable embed(const Tensor& ids, const ForwardState& state) const;
  Variable run_blocks(Variable x, const ForwardState& state) const;
  Variable project(const Variable& x) const;
  RegionUse embedding_use() const;
  RegionUse head_use(bool backward_follows) const;

  Dropout embd_dropout_;
};

}  // namespace trencadis
