#include "models/hugging_face/hugging_face_format.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "models/families.h"

namespace trencadis::hugging_face {

namespace {

using Json = nlohmann::json;

constexpr const char* kOwnKey = "trencadis";

// Looks keys up and collects what is wrong with them.
class ConfigReader {
 public:
  explicit ConfigReader(const Json& config) : config_(config) {}

  // A size under any of its names; `otherwise` where it is missing.
  int64_t size(const HuggingFaceNames::Size& size) {
    int64_t value = size.otherwise;
    const char* found = nullptr;
    for (const std::string& name : size.names) {
      const Json* json = value_of(name);
      if (!json) continue;
      constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
      if (!json->is_number_integer() || *json < 1 || *json > kMost) {
        problem(name, fmt::format("an integer from 1 to {}", kMost));
        continue;
      }
      if (found && json->get<int64_t>() != value)
        problem(name, fmt::format("{}, the value of {}, which means the same", value, found));
      if (!found) value = json->get<int64_t>();
      found = name.c_str();
    }
    return value;
  }

  bool boolean(const std::string& name, bool otherwise) {
    const Json* json = value_of(name);
    if (json && !json->is_boolean()) problem(name, "true, false");
    return json && json->is_boolean() ? json->get<bool>() : otherwise;
  }

  void check(const HuggingFaceNames::Key& key) {
    const Json* json = value_of(key.name);
    if (!json) return;
    if (key.must_be_missing && !(json->is_structured() && json->empty())) problem(key.name, "a model without it");
    if (key.supported.empty()) return;
    for (const std::string& text : key.supported)
      if (same(*json, Json::parse(text))) return;
    problem(key.name, fmt::format("{}", fmt::join(key.supported, ", ")));
  }

  const std::string& problems() const { return problems_; }

 private:
  // Numbers as floats: 1e-05 may have passed through one.
  static bool same(const Json& value, const Json& supported) {
    if (value.is_number() && supported.is_number()) return value.get<float>() == supported.get<float>();
    return value == supported;
  }

  // Null if the key is missing or its value is null.
  const Json* value_of(const std::string& name) const {
    const auto found = config_.find(name);
    return found == config_.end() || found->is_null() ? nullptr : &*found;
  }

  void problem(const std::string& name, const std::string& supported) {
    problems_ += fmt::format("\n  {} is {}; supported: {}", name, config_.at(name).dump(), supported);
  }

  const Json& config_;
  std::string problems_;
};

// What the numbers of the vocabulary stand for, as far as its size tells.
const char* tokens_of(int64_t vocab_size) {
  switch (vocab_size) {
    case 256:
      return "the bytes of a text (UTF-8), 0 to 255: needs no tokenizer";
    case 50257:
      return "GPT-2's byte pairs: the tokenizer of openai-community/gpt2";
    default:
      return "those of the token files that the model was trained on";
  }
}

// Which of the families a folder's model is; the first, GPT-2, where it does not say: old folders do not.
const ModelFamily& family_of(const Json& config, const std::string& path) {
  const auto type = config.find("model_type");
  if (type == config.end() || type->is_null()) return *model_families().front();
  std::vector<std::string> known;
  for (const ModelFamily* family : model_families()) {
    if (*type == family->hugging_face.model_type) return *family;
    known.push_back(Json(family->hugging_face.model_type).dump());
  }
  throw DataError(fmt::format("{}: describes another model: model_type is {}; supported: {}", path, type->dump(),
                              fmt::join(known, ", ")));
}

}  // namespace

Shape stored_shape(const HuggingFaceNames& names, const std::string& parameter, const Shape& ours) {
  return names.transposed(parameter) ? Shape{ours[1], ours[0]} : ours;
}

ModelConfig parse_config(const std::string& text, const std::string& path) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    throw DataError(fmt::format("{}: is not a JSON object; save the folder again with save_pretrained()", path));
  const ModelFamily& family = family_of(json, path);
  const HuggingFaceNames& names = family.hugging_face;
  ConfigReader reader(json);
  ModelConfig config;
  config.family = family.name;
  for (const HuggingFaceNames::Size& size : names.sizes) config.*size.field = reader.size(size);
  config.tied = reader.boolean("tie_word_embeddings", true);
  for (const HuggingFaceNames::Key& key : names.keys(config)) reader.check(key);
  std::string problems = reader.problems();
  if (config.n_embd % config.n_head != 0)
    problems += fmt::format("\n  n_embd is {}; supported: a multiple of n_head, {}", config.n_embd, config.n_head);
  if (!problems.empty())
    throw DataError(fmt::format("{}: describes another model than this project's {}:{}", path, family.name, problems));
  return config;
}

std::string config_text(const ModelConfig& config, DType dtype) {
  const HuggingFaceNames& names = model_family(config.family).hugging_face;
  nlohmann::ordered_json json = {{"architectures", {names.architecture}}, {"model_type", names.model_type}};
  for (const HuggingFaceNames::Size& size : names.sizes)
    for (size_t i = 0; i < size.written; ++i) json[size.names[i]] = config.*size.field;
  for (const HuggingFaceNames::Key& key : names.keys(config))
    if (!key.written.empty()) json[key.name] = Json::parse(key.written);
  json["tie_word_embeddings"] = config.tied;
  const char* type = dtype == DType::bf16 ? "bfloat16" : "float32";
  json["torch_dtype"] = type;  // transformers up to 4.55
  json["dtype"] = type;        // and since
  json[kOwnKey] = {{"version", TRENCADIS_VERSION}, {"tokens", tokens_of(config.vocab_size)}};
  return json.dump(2) + "\n";
}

bool is_own_config(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains(kOwnKey);
}

}  // namespace trencadis::hugging_face
