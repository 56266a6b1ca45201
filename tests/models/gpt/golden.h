// Golden values: what PyTorch computes in double precision for two small GPTs. tests/golden/make_gpt_golden.py makes
// the files and describes them; reading them needs no PyTorch.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/gpt/gpt.h"
#include "runtime/kernel_test.h"

namespace trencadis::test {

// One of the models: "tied" or "untied".
class Golden {
 public:
  explicit Golden(const std::string& model) {
    std::ifstream text(TRENCADIS_GOLDEN_DIR "/gpt_small.json");
    REQUIRE_MESSAGE(text, "cannot open " TRENCADIS_GOLDEN_DIR "/gpt_small.json");
    const nlohmann::json file = nlohmann::json::parse(text);
    json = file.at("models").at(model);
    std::ifstream data(TRENCADIS_GOLDEN_DIR "/" + file.at("file").get<std::string>(), std::ios::binary);
    REQUIRE_MESSAGE(data, "cannot open the values beside gpt_small.json");
    data.seekg(0, std::ios::end);
    floats_.resize(static_cast<size_t>(data.tellg()) / sizeof(float));
    data.seekg(0);
    data.read(reinterpret_cast<char*>(floats_.data()), static_cast<std::streamsize>(floats_.size() * sizeof(float)));
    REQUIRE(data);
  }

  ModelConfig config() const {
    const nlohmann::json& c = json.at("config");
    return {.n_layer = c.at("n_layer"),
            .n_head = c.at("n_head"),
            .n_embd = c.at("n_embd"),
            .block_size = c.at("block_size"),
            .vocab_size = c.at("vocab_size"),
            .tied = c.at("tied")};
  }

  bool has(const std::string& tensor) const { return json.at("tensors").contains(tensor); }
  Shape shape(const std::string& tensor) const { return json.at("tensors").at(tensor).at("shape").get<Shape>(); }
  std::vector<float> values(const std::string& tensor) const {
    const size_t offset = json.at("tensors").at(tensor).at("offset");
    const size_t n = static_cast<size_t>(element_count(shape(tensor)));
    REQUIRE(offset + n <= floats_.size());
    return {floats_.begin() + static_cast<std::ptrdiff_t>(offset),
            floats_.begin() + static_cast<std::ptrdiff_t>(offset + n)};
  }

  // "ids" or "targets": (B, T).
  Tensor batch(Context& context, const char* which) const {
    const auto rows = json.at(which).get<std::vector<std::vector<int32_t>>>();
    std::vector<int32_t> all;
    for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
    return Tensor::from(context, all, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())});
  }

  // Memory for the model's parameters, with the golden weights.
  void load(GPT& model, Context& context) const {
    allocate_parameters(model, context, 0);
    for (Parameter* p : model.parameters()) {
      CAPTURE(p->name);
      REQUIRE(has("param/" + p->name));
      REQUIRE(shape("param/" + p->name) == p->shape);
      context.copy_from_host(p->variable.value(), values("param/" + p->name).data());
    }
  }

  nlohmann::json json;

 private:
  std::vector<float> floats_;
};

inline double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float x : values) most = std::max(most, std::abs(static_cast<double>(x)));
  return most;
}

}  // namespace trencadis::test
