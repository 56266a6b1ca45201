// Hugging Face folders by hand: one is written and read back, and what lies in it is shown. A folder that is there
// already goes through as well, with the logits that this project computes from it:
//
//   example_hugging_face FROM TO       prints the logits of tokens 0, 1, 2, ... at each position, and exports to TO
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "dist/local/local_communicator.h"
#include "models/families.h"
#include "models/hugging_face/hugging_face.h"
#include "runtime/cpu/backend.h"

using namespace trencadis;

namespace {

struct Run {
  explicit Run(const ModelConfig& config)
      : model(make_model(config)),
        engine(context, {world.get(), nullptr}, model->units(), make_adamw({}), {.seed = 1}) {}

  void start_from(const HuggingFaceModel& folder) {
    folder.check(*model);
    engine.set_parameters([&](const Parameter& parameter, int64_t first, std::span<float> values) {
      folder.read(parameter, first, values);
    });
  }

  Context context{make_cpu_backend()};
  std::unique_ptr<Communicator> world = make_local_communicator();
  std::unique_ptr<LanguageModel> model;
  ZeroEngine engine;
};

void print_logits(Run& run) {
  const ModelConfig& config = run.model->config();
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < config.block_size; ++t) ids.push_back(static_cast<int32_t>(t % config.vocab_size));
  const NoGrad no_grad;
  const Tensor tokens = Tensor::from(run.context, ids, {1, config.block_size});
  const std::vector<float> logits = run.model->logits(tokens, {}).value().to_vector();
  for (size_t i = 0; i < logits.size(); ++i)
    std::printf("%.9g%c", logits[i], (i + 1) % static_cast<size_t>(config.vocab_size) == 0 ? '\n' : ' ');
}

void show(const std::string& path) {
  const SafetensorsReader file(path + "/model.safetensors");
  for (const SafetensorsEntry& entry : file.entries())
    fmt::print("  {:<36} {} ({})\n", entry.name, entry.dtype, fmt::join(entry.shape, ","));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) {
    const HuggingFaceModel folder(argv[1]);
    Run run(folder.config());
    run.start_from(folder);
    print_logits(run);
    export_hugging_face(run.engine, *run.model, *run.world, argv[2]);
    return 0;
  }

  const std::string path = std::filesystem::temp_directory_path() / fmt::format("trencadis-example-{}", getpid());
  Run drawn({.n_layer = 1, .n_head = 2, .n_embd = 8, .block_size = 16});
  export_hugging_face(drawn.engine, *drawn.model, *drawn.world, path);
  fmt::print("in the folder:\n");
  show(path);

  const HuggingFaceModel folder(path);
  Run read(folder.config());
  read.start_from(folder);
  fmt::print("read back: {} layer, {} heads, {} channels, {} positions, vocabulary {}\n", folder.config().n_layer,
             folder.config().n_head, folder.config().n_embd, folder.config().block_size, folder.config().vocab_size);
  for (const Parameter* parameter : read.model->parameters())
    if (parameter->name == "h.0.mlp.c_fc.weight") fmt::print("c_fc of ours: ({})\n", fmt::join(parameter->shape, ","));
  fmt::print("digests of what was drawn and of what was read: {}\n",
             drawn.engine.digest() == read.engine.digest() ? "equal" : "different");
  std::filesystem::remove_all(path);
}
