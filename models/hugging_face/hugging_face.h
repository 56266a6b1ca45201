// Hugging Face folders, in and out: `config.json`, and `model.safetensors` or shards of it with an index.
//
// What lies there is a model of this project under the names that its family says (models/family.h). Of GPT-2 they are
// our own, but for three things: names may begin with "transformer."; the four projections of a block are stored
// (in, out), ours are (out, in); and a head that is tied to the table is left out. Nothing is downloaded, and no
// tokenizer is read or written.
//
// Errors are DataErrors that name the folder and all that is wrong at once. Memory: reading takes a band of at most
// 1 MiB; writing takes, on rank 0, one projection at a time and a band.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/family.h"
#include "zero/checkpoint/safetensors.h"
#include "zero/engine.h"

namespace trencadis {

// A folder to start from. Every rank opens it and reads what it holds:
//
//   const HuggingFaceModel folder(path);
//   auto model = make_model(folder.config());      // or a configuration with other dropout, --untied, ...
//   folder.check(*model);
//   ZeroEngine engine(...);
//   engine.set_parameters([&](auto&... arguments) { folder.read(arguments...); });
//
// Not collective: it may fail on some ranks only, so callers put it into on_all_ranks(). Reading is thread-safe.
class HuggingFaceModel {
 public:
  // Reads config.json, the index and the headers of the files, but no weights.
  explicit HuggingFaceModel(std::string folder);

  // Sizes, and whether the head is tied. Dropout is a matter of the training, not of the model, and stays 0.
  const ModelConfig& config() const { return config_; }
  // Whether the folder holds this model, no less and no more; throws one error with every difference. Two models that
  // compute the same count as the same: an untied one starts from a tied folder with a copy of the table as its head,
  // and one of a smaller block_size with the first rows of the position table.
  void check(LanguageModel& model) const;
  // Elements [first, first + out.size()) of a parameter of a checked model, as f32: bf16 and f16 convert exactly.
  void read(const Parameter& parameter, int64_t first, std::span<float> out) const;
  // Where an element of such a parameter lies, and that it is `value`: file, name and indices are the folder's.
  std::string describe(const Parameter& parameter, int64_t element, float value) const;

 private:
  struct Tensor {
    size_t file = 0;  // number in files_
    const SafetensorsEntry* entry = nullptr;
  };
  using Tensors = std::map<std::string, Tensor>;

  void open_files();
  void open_shards(const std::string& index_path);
  void list_tensors();
  // The tensor that holds a parameter, under its own name; where head and table are one, under the other's too.
  const Tensors::value_type* find(const std::string& parameter) const;
  std::string difference_of(const Parameter& parameter) const;
  bool equal(const Tensor& a, const Tensor& b) const;
  // Elements [first, first + count) as they lie in the file.
  void read_stored(const Tensor& tensor, int64_t first, int64_t count, float* out) const;
  void read_transposed(const Tensor& tensor, int64_t first, std::span<float> out) const;

  std::string folder_;
  ModelConfig config_;
  const HuggingFaceNames* names_ = nullptr;  // of its family
  std::vector<SafetensorsReader> files_;
  Tensors tensors_;  // by the parameter's name, masks of attention left out
};

// Writes the engine's parameters to `folder`, as dtype f32 or bf16, so that transformers 4 and 5 read it: into a
// temporary folder beside it that takes its name once it is complete and on the disk. Collective; rank 0 writes.
// Throws the same error on all ranks.
void export_hugging_face(ZeroEngine& engine, LanguageModel& model, Communicator& world, const std::string& folder,
                         DType dtype = DType::f32);

// Whether export_hugging_face() may write there: what is written after hours of training must not fail for a name. The
// folder may be missing, empty, or hold an earlier export, which is then replaced; anything else is a DataError.
// Not collective: for rank 0, in on_all_ranks().
void check_export_folder(const std::string& folder);

}  // namespace trencadis
