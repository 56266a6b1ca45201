#include "zero/checkpoint/shards.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "runtime/crc32c.h"
#include "zero/finite.h"

namespace trencadis {

namespace {

constexpr const char* kShardFormat = "trencadis shard";
constexpr int64_t kElement = 4;  // all of a checkpoint is f32

// What the index calls state i of the optimizer is the prefix of its tensors; -1: the values.
std::string tensor_name(const CheckpointIndex& index, const std::string& parameter, int state) {
  return (state == kParameterValues ? std::string("values") : index.states[static_cast<size_t>(state)]) + "/" +
         parameter;
}

// Size and CRC-32C of a file, read once through a buffer.
CheckpointFile measure(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw DataError(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  const std::unique_ptr<const int, void (*)(const int*)> closer(&descriptor, [](const int* d) { ::close(*d); });
  std::vector<char> buffer(static_cast<size_t>(kCheckpointBuffer));
  CheckpointFile file;
  Crc32c crc;
  for (;;) {
    const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw DataError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
    if (got == 0) break;
    crc.update(buffer.data(), static_cast<size_t>(got));
    file.bytes += got;
  }
  file.crc32c = crc.value();
  return file;
}

}  // namespace

CheckpointFile write_shard(ZeroEngine& engine, Context& context, const std::string& folder,
                           const CheckpointIndex& index, int rank, int world) {
  const auto visit = [&](const std::function<void(const StateSlice&)>& use) {
    engine.visit_state(StateExtent::owned, [&](const StateSlice& slice) {
      if (slice.state == kParameterValues || static_cast<size_t>(slice.state) < index.states.size()) use(slice);
    });
  };
  std::vector<SafetensorsEntry> entries;
  visit([&](const StateSlice& slice) {
    entries.push_back({tensor_name(index, slice.parameter.name, slice.state), "F32", {slice.memory.size}, 0, 0});
  });
  const std::string name = shard_file_name(rank, world);
  SafetensorsWriter writer(folder + "/" + name, std::move(entries),
                           {{"format", kShardFormat}, {"run", index.run}, {"save", index.save}});
  std::vector<float> buffer;
  int64_t not_finite = 0;
  visit([&](const StateSlice& slice) {
    constexpr int64_t chunk = kCheckpointBuffer / kElement;
    for (int64_t done = 0; done < slice.memory.size; done += chunk) {
      const View part = slice.memory.slice(done, std::min(chunk, slice.memory.size - done));
      buffer.resize(static_cast<size_t>(part.size));
      context.copy_to_host(buffer.data(), part);
      not_finite += count_not_finite(buffer);
      writer.append(buffer.data(), part.bytes());
    }
  });
  const SafetensorsWriter::Written written = writer.finish();
  return {name, written.bytes, written.crc32c, not_finite};
}

CheckpointReader::CheckpointReader(std::string folder, const CheckpointIndex& index)
    : folder_(std::move(folder)), index_(index), files_(index.files.size()) {}

CheckpointReader::~CheckpointReader() = default;

SafetensorsReader& CheckpointReader::file(int number) {
  auto& reader = files_[static_cast<size_t>(number)];
  if (!reader)
    reader = std::make_unique<SafetensorsReader>(folder_ + "/" + index_.files[static_cast<size_t>(number)].name);
  return *reader;
}

void CheckpointReader::verify(int number) {
  const CheckpointFile& said = index_.files[static_cast<size_t>(number)];
  const std::string path = folder_ + "/" + said.name;
  const CheckpointFile is = measure(path);
  const std::string size = fmt::format("it has {} bytes, the index says {}", is.bytes, said.bytes);
  if (is.bytes < said.bytes) throw DataError(fmt::format("{}: is cut short: {}", path, size));
  const SafetensorsMetadata& metadata = file(number).metadata();
  const auto save = metadata.find("save");
  if (save == metadata.end() || save->second != index_.save)
    throw DataError(
        fmt::format("{}: belongs to another save than index.json beside it ({}, not {}); folders of two "
                    "checkpoints were mixed",
                    path, save == metadata.end() ? "unnamed" : save->second, index_.save));
  if (is.bytes != said.bytes) throw DataError(fmt::format("{}: is not what was saved: {}", path, size));
  if (is.crc32c != said.crc32c)
    throw DataError(
        fmt::format("{}: is damaged: its CRC-32C is {:08X}, the index says {:08X}", path, is.crc32c, said.crc32c));
}

void CheckpointReader::read(const CheckpointTensor& tensor, const std::string& name, int64_t first,
                            std::span<float> out, bool as_saved) {
  const int64_t end = first + static_cast<int64_t>(out.size());
  // The slices ascend and cover the tensor: begin with the one that holds `first`.
  auto slice = std::upper_bound(tensor.slices.begin(), tensor.slices.end(), first,
                                [](int64_t at, const CheckpointSlice& s) { return at < s.first; });
  int64_t count = 0;
  for (--slice; first < end; ++slice, first += count) {
    count = std::min(end, slice->first + slice->count) - first;
    SafetensorsReader& shard = file(slice->file);
    const SafetensorsEntry* entry = shard.find(name);
    if (!entry || entry->dtype != "F32" || entry->elements() != slice->count)
      throw DataError(fmt::format("{}: holds {} instead of {} elements (F32) of {}", shard.path(),
                                  entry ? fmt::format("{} ({})", entry->elements(), entry->dtype) : "none",
                                  slice->count, name));
    float* const to = out.data() + (static_cast<int64_t>(out.size()) - (end - first));
    shard.read(*entry, (first - slice->first) * kElement, count * kElement, to);
    const bool has_some = index_.files[static_cast<size_t>(slice->file)].not_finite > 0;
    if (has_some && as_saved) continue;
    if (const int64_t at = first_not_finite({to, static_cast<size_t>(count)}); at >= 0)
      throw DataError(fmt::format(
          "{}: {}, {}", shard.path(), describe_element(name, tensor.shape, first + at, to[at]),
          has_some ? "as it was in the run that saved it; a training cannot start from that: name an earlier checkpoint"
                   : "and the index knows of no such value in the run that saved it: the file is damaged; name another "
                     "checkpoint"));
  }
}

void CheckpointReader::load(ZeroEngine& engine, Context& context, bool with_states, bool as_saved) {
  std::map<std::string_view, const CheckpointTensor*> by_name;
  for (const CheckpointTensor& tensor : index_.tensors) by_name[tensor.name] = &tensor;
  std::vector<float> buffer;
  engine.visit_state(StateExtent::held, [&](const StateSlice& slice) {
    if (slice.state != kParameterValues && !with_states) return;
    const CheckpointTensor& tensor = *by_name.at(slice.parameter.name);
    const std::string name = tensor_name(index_, tensor.name, slice.state);
    constexpr int64_t chunk = kCheckpointBuffer / kElement;
    for (int64_t done = 0; done < slice.memory.size; done += chunk) {
      const View part = slice.memory.slice(done, std::min(chunk, slice.memory.size - done));
      buffer.resize(static_cast<size_t>(part.size));
      read(tensor, name, slice.first + done, buffer, as_saved);
      context.copy_from_host(part, buffer.data());
    }
  });
  if (with_states) engine.set_counts(index_.optimizer_steps, index_.skipped_steps);
}

std::vector<std::string> model_differences(const CheckpointIndex& index, const std::vector<FlatUnit>& layouts) {
  std::map<std::string, const Parameter*> model;
  for (const FlatUnit& unit : layouts)
    for (const FlatSegment& segment : unit.segments)
      for (const FlatEntry& entry : segment.entries()) model[entry.parameter->name] = entry.parameter;
  std::vector<std::string> differences;
  for (const CheckpointTensor& tensor : index.tensors) {
    const auto found = model.find(tensor.name);
    if (found == model.end()) {
      differences.push_back(fmt::format("{} {} is in the checkpoint only", tensor.name, to_string(tensor.shape)));
      continue;
    }
    if (found->second->shape != tensor.shape)
      differences.push_back(fmt::format("{} is {} in the checkpoint and {} in the model", tensor.name,
                                        to_string(tensor.shape), to_string(found->second->shape)));
    model.erase(found);
  }
  for (const auto& [name, parameter] : model)
    differences.push_back(fmt::format("{} {} is in the model only", name, to_string(parameter->shape)));
  return differences;
}

}  // namespace trencadis
