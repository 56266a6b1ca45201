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
  BlockConfig block;
  block.channels = config.n_embd;
  block.heads = config.n_head;
  block.dropout = config.dropout;
  block.residual_stddev = 0.02f / std::sqrt(2.0f * static_cast<float>(config.n_layer));
  for (int64_t i = 0; i < config.n_layer; ++i) {
    h.push_back(std::make_unique<Block>(block));
    add_child(fmt::format("h.{}", i), *h.back());
  }
  add_child("ln_f", ln_f);
  if (!config.tied) {
    lm_head = std::make_unique<Linear>(config.n_embd, config.vocab_size, Initialiser::normal(0.02f), false);
    add_child("lm_head", *lm_head);
  }
  assign_names();
}

// Unit 0: root (tied) or embedding; 1..L: blocks; L+1: head (untied).
std::vector<Unit> GPT::units() {
  std::vector<Unit> units;
  units.push_back({config().tied ? "root" : "embedding", {&wte.weight, &wpe.weight}});
  if (config().tied)
    for (Parameter* p : ln_f.parameters()) units[0].parameters.push_back(p);
  for (auto& block : h) units.push_back({block->full_name(), block->parameters()});
  if (!config().tied) {
    units.push_back({"head", ln_f.parameters()});
    units.back().parameters.push_back(&lm_head->weight);
  }
  return units;
}

RegionUse GPT::embedding_use() const {
  RegionUse use;
  use.unit = 0;
  use.name = "embedding";
  use.backward_needs_parameters = false;
  return use;
}

RegionUse GPT::block_use(size_t i) const {
  RegionUse use;
  use.unit = static_cast<int>(i) + 1;
  use.name = h[i]->full_name();
  return use;
}

RegionUse GPT::head_use(bool backward_follows) const {
  RegionUse use;
  use.unit = config().tied ? 0 : static_cast<int>(h.size()) + 1;
  use.name = "head";
  use.backward_follows = backward_follows;
  return use;
}

std::vector<RegionUse> GPT::uses() const {
  std::vector<RegionUse> uses = {embedding_use()};
  for (size_t i = 0; i < h.size(); ++i) uses.push_back(block_use(i));
  uses.push_back(head_use(true));
  return uses;
}

Variable GPT::embed(const Tensor& ids, const ForwardState& state) const {
  return region(observer(), embedding_use(), false, {},
                [=, this](const std::vector<Variable>&) -> std::vector<Variable> {
                  return {embd_dropout_.forward(embedding(ids, wte.weight.variable, wpe.weight.variable), state)};
                })[0];
}

Variable GPT::run_blocks(Variable x, const ForwardState& state) const {
  for (size_t i = 0; i < h.size(); ++i) {
    const Block* block = h[i].get();
    x = region(
        observer(), block_use(i), config().activation_checkpointing, {x},
        [=](const std::vector<Variable>& in) -> std::vector<Variable> { return {block->forward(in[0], state)}; })[0];
  }
  return x;
}

Variable GPT::project(const Variable& x) const {
  return config().tied ? linear(ln_f.forward(x), wte.weight.variable) : lm_head->forward(ln_f.forward(x));
}

Variable GPT::loss(const Tensor& ids, const Tensor& targets, const ForwardState& state, const Tensor& totals) const {
  const Variable x = run_blocks(embed(ids, state), state);
  return region(observer(), head_use(true), false, {x},
                [=, this](const std::vector<Variable>& in) -> std::vector<Variable> {
                  return {softmax_cross_entropy(project(in[0]), targets, totals)};
                })[0];
}

Variable GPT::logits(const Tensor& ids, const ForwardState& state) const {
  const Variable x = run_blocks(embed(ids, state), state);
  return region(observer(), head_use(false), false, {x},
                [=, this](const std::vector<Variable>& in) -> std::vector<Variable> { return {project(in[0])}; })[0];
}

Tensor GPT::next_token_logits(const Tensor& ids) const {
  const NoGrad no_grad;
  CHECK(ids.dim(0) == 1, "next_token_logits takes one sequence, not {}", ids.dim(0));
  const Variable x = run_blocks(embed(ids, {}), {});
  const int64_t C = config().n_embd;
  const Variable last(x.value().flat_slice((ids.dim(1) - 1) * C, C).reshape({1, C}));
  return region(observer(), head_use(false), false, {last},
                [this](const std::vector<Variable>& in) -> std::vector<Variable> { return {project(in[0])}; })[0]
      .value();
}

}  // namespace trencadis
