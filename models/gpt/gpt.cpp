#include "models/gpt/gpt.h"

#include "runtime/context.h"

namespace trencadis {

GPT::GPT(const ModelConfig& config)
    : LanguageModel(config),
      wte(config.vocab_size, config.n_embd, Initialiser::normal(0.02f)),
      wpe(config.block_size, config.n_embd, Initialiser::normal(0.02f)),
      ln_f(config.n_embd),
      embd_dropout_(config.dropout) {
  CHECK(config.n_head > 0 && config.n_embd % config.n_head == 0, "n_embd {} is not divisible by n_head {}",
        config.n_embd, config.n_head);
  add_child("wte", wte);
  add_child("wpe", wpe);
  add_child("drop", embd_dropout_);
  if (config.tied)
    add_unit("root", {&wte, &wpe, &ln_f});
  else
    add_unit("embedding", {&wte, &wpe});
  BlockConfig block;
  block.channels = config.n_embd;
  block.heads = config.n_head;
  block.dropout = config.dropout;
  block.residual_stddev = 0.02f / std::sqrt(2.0f * static_cast<float>(config.n_layer));
  for (int64_t i = 0; i < config.n_layer; ++i) {
    h.push_back(std::make_unique<Block>(block));
    add_unit(fmt::format("h.{}", i), *h.back());
  }
  add_child("ln_f", ln_f);
  if (!config.tied) {
    lm_head = std::make_unique<Linear>(config.n_embd, config.vocab_size, Initialiser::normal(0.02f), false);
    add_child("lm_head", *lm_head);
    add_unit("head", {&ln_f, lm_head.get()});
  }
  assign_names();
}

RegionUse GPT::embedding_use() const {
  RegionUse use = use_of(wte);
  use.name = "embedding";
  use.backward_needs_parameters = false;
  return use;
}

RegionUse GPT::head_use(bool backward_follows) const {
  RegionUse use = use_of(ln_f);
  use.name = "head";
  use.backward_follows = backward_follows;
  return use;
}

std::vector<RegionUse> GPT::uses() const {
  std::vector<RegionUse> uses = {embedding_use()};
  for (const auto& block : h) uses.push_back(use_of(*block));
  uses.push_back(head_use(true));
  return uses;
}

Variable GPT::embed(const Tensor& ids, const ForwardState& state) const {
  return run(embedding_use(), Variable(), [=, this](const Variable&) {
    return embd_dropout_.forward(embedding(ids, wte.weight.variable, wpe.weight.variable), state);
  });
}

Variable GPT::run_blocks(Variable x, const ForwardState& state) const {
  for (const auto& owner : h) {
    const Block* block = owner.get();
    const auto forward = [=](const Variable& in) { return block->forward(in, state); };
    x = run(use_of(*block), x, forward, config().activation_checkpointing);
  }
  return x;
}

Variable GPT::project(const Variable& x) const {
  return config().tied ? linear(ln_f.forward(x), wte.weight.variable) : lm_head->forward(ln_f.forward(x));
}

Variable GPT::loss(const Tensor& ids, const Tensor& targets, const ForwardState& state, const Tensor& totals) const {
  return run(head_use(true), run_blocks(embed(ids, state), state),
             [=, this](const Variable& x) { return softmax_cross_entropy(project(x), targets, totals); });
}

Variable GPT::logits(const Tensor& ids, const ForwardState& state) const {
  return run(head_use(false), run_blocks(embed(ids, state), state), [this](const Variable& x) { return project(x); });
}

Tensor GPT::next_token_logits(const Tensor& ids) const {
  const NoGrad no_grad;
  CHECK(ids.dim(0) == 1, "next_token_logits takes one sequence, not {}", ids.dim(0));
  const Variable x = run_blocks(embed(ids, {}), {});
  const int64_t C = config().n_embd;
  const Variable last(x.value().flat_slice((ids.dim(1) - 1) * C, C).reshape({1, C}));
  return run(head_use(false), last, [this](const Variable& in) { return project(in); }).value();
}

}  // namespace trencadis
