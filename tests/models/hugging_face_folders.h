// What the tests of Hugging Face folders share: the golden folders (tests/golden/make_hugging_face.py makes them with
// transformers), folders made of them by changing a tensor or a key, and a model under an engine on each of W ranks.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "dist/thread/thread_communicator.h"
#include "models/gpt/gpt.h"
#include "models/hugging_face/hugging_face.h"
#include "runtime/cpu/backend.h"
#include "temp_folder.h"

namespace trencadis::test {

using Floats = std::vector<float>;

inline std::string golden_folder(const std::string& name) { return TRENCADIS_GOLDEN_DIR "/hugging_face/" + name; }

inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file, "cannot open ", path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline nlohmann::json file_json(const std::string& path) { return nlohmann::json::parse(file_text(path)); }

// ---- tensors of a safetensors file, by the names in it ----

struct RawTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
  bool operator==(const RawTensor&) const = default;
};
using RawTensors = std::map<std::string, RawTensor>;

inline RawTensors load_tensors(const std::string& path) {
  const SafetensorsReader reader(path);
  RawTensors tensors;
  for (const SafetensorsEntry& entry : reader.entries()) {
    RawTensor& tensor = tensors[entry.name];
    tensor = {entry.dtype, entry.shape, std::string(static_cast<size_t>(entry.bytes()), '\0')};
    reader.read(entry, 0, entry.bytes(), tensor.bytes.data());
  }
  return tensors;
}

inline void save_tensors(const std::string& path, const RawTensors& tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    SafetensorsEntry& entry = entries.emplace_back();
    entry.name = name, entry.dtype = tensor.dtype, entry.shape = tensor.shape;
  }
  SafetensorsWriter writer(path, entries, {{"format", "pt"}});
  for (const auto& [name, tensor] : tensors)
    writer.append(tensor.bytes.data(), static_cast<int64_t>(tensor.bytes.size()));
  writer.finish();
}

template <typename Number>
RawTensor raw(const std::string& dtype, std::vector<int64_t> shape, const std::vector<Number>& values) {
  return {dtype, std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Number))};
}

inline Floats floats_of(const RawTensor& tensor) {
  REQUIRE(tensor.dtype == "F32");
  Floats values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// A copy of the golden folder `single`, changed. Returns its path.
inline std::string changed_folder(const TempFolder& temp, const std::string& name,
                                  const std::function<void(RawTensors&, nlohmann::json& config)>& change) {
  RawTensors tensors = load_tensors(golden_folder("single") + "/model.safetensors");
  nlohmann::json config = file_json(golden_folder("single") + "/config.json");
  change(tensors, config);
  temp.write(name + "/config.json", config.dump());
  save_tensors(temp.path(name + "/model.safetensors"), tensors);
  return temp.path(name);
}

// ---- models ----

// The parameter's values by the folder, whole.
inline Floats whole(const HuggingFaceModel& folder, const Parameter& parameter) {
  Floats values(static_cast<size_t>(parameter.size()));
  folder.read(parameter, 0, values);
  return values;
}

// A model with the folder's weights and memory of its own, no engine.
struct LoadedModel {
  LoadedModel(const std::string& path, const ModelConfig& config) : folder(path), model(config) {
    folder.check(model);
    allocate_parameters(model, context, 0);
    for (Parameter* p : model.parameters()) context.copy_from_host(p->variable.value(), whole(folder, *p).data());
  }
  explicit LoadedModel(const std::string& path) : LoadedModel(path, HuggingFaceModel(path).config()) {}

  Floats logits(const std::vector<std::vector<int32_t>>& rows) {
    std::vector<int32_t> ids;
    for (const auto& row : rows) ids.insert(ids.end(), row.begin(), row.end());
    const NoGrad no_grad;
    const Shape shape = {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())};
    return model.logits(Tensor::from(context, ids, shape), {}).value().to_vector();
  }

  Context context{make_cpu_backend({.threads = 1, .poison = true})};
  HuggingFaceModel folder;
  GPT model;
};

// Runs body on ranks that are threads; returns what each threw, "" for nothing.
inline std::vector<std::string> on_ranks(int world, const std::function<void(Communicator&)>& body) {
  auto comms = make_thread_communicators(world, {.timeout_seconds = 30});
  std::vector<std::string> errors(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (size_t r = 0; r < errors.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        body(*comms[r]);
      } catch (const std::exception& error) {
        const bool data = dynamic_cast<const DataError*>(&error) != nullptr;
        errors[r] = (data ? "DataError: " : "") + std::string(error.what());
        comms[r].reset();  // whoever waits for this rank must not wait for the timeout
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// One rank's model under an engine; members die in reverse order.
struct EngineModel {
  EngineModel(Communicator& comm, const ModelConfig& config, int stage)
      : model(config), engine(context, {&comm, nullptr}, model.units(), make_adamw({}), {.stage = stage, .seed = 5}) {
    model.set_observer(&engine);
  }
  void start_from(const HuggingFaceModel& folder) {
    engine.set_parameters([&](const Parameter& parameter, int64_t first, std::span<float> values) {
      folder.read(parameter, first, values);
    });
  }

  Context context{make_cpu_backend({.threads = 1, .poison = true})};
  GPT model;
  ZeroEngine engine;
};

}  // namespace trencadis::test
