// Storage: the owner of one allocation, which may be released and materialised again while its views stay valid.
//
// Why: under ZeRO-3 a parameter's bytes come and go many times a step, while modules, saved tensors and the optimizer
// keep pointing at the parameter. They point at the Storage; only the Storage knows whether bytes exist now and where.
// Invariant: data() != nullptr exactly while materialised, and the tracker counts bytes() exactly then.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/memory_tracker.h"

namespace trencadis {

class Context;

class Storage {
 public:
  // A materialised storage of `bytes` bytes (undefined contents). The context must outlive it.
  static std::shared_ptr<Storage> create(Context& context, int64_t bytes, MemoryCategory category, std::string name);
  // The same, but released: no bytes yet.
  static std::shared_ptr<Storage> create_released(Context& context, int64_t bytes, MemoryCategory category,
                                                  std::string name);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void materialise();  // takes memory (undefined contents); no-op if materialised
  void release();      // gives memory back; no-op if released
  bool materialised() const { return data_ != nullptr || bytes_ == 0; }

  // The bytes; throws Error naming the storage, and the part of it that starts at or before byte_offset, if released.
  void* data(int64_t byte_offset = 0) const {
    if (!data_ && bytes_) [[unlikely]]
      throw_released(byte_offset);
    return static_cast<char*>(data_) + byte_offset;
  }
  int64_t bytes() const { return bytes_; }
  MemoryCategory category() const { return category_; }
  const std::string& name() const { return name_; }
  Context& context() const { return context_; }

  // Names of the parts, by ascending byte offset: what an error about a released storage calls them.
  void set_parts(std::vector<std::pair<int64_t, std::string>> parts) { parts_ = std::move(parts); }

 private:
  Storage(Context& context, int64_t bytes, MemoryCategory category, std::string name)
      : context_(context), bytes_(bytes), category_(category), name_(std::move(name)) {}
  [[noreturn]] void throw_released(int64_t byte_offset) const;

  Context& context_;
  int64_t bytes_;
  MemoryCategory category_;
  std::string name_;
  std::vector<std::pair<int64_t, std::string>> parts_;
  void* data_ = nullptr;
};

}  // namespace trencadis
