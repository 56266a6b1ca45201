#include "runtime/storage.h"

#include "runtime/check.h"
#include "runtime/context.h"

namespace trencadis {

std::shared_ptr<Storage> Storage::create(Context& context, int64_t bytes, MemoryCategory category, std::string name) {
  auto storage = create_released(context, bytes, category, std::move(name));
  storage->materialise();
  return storage;
}

std::shared_ptr<Storage> Storage::create_released(Context& context, int64_t bytes, MemoryCategory category,
                                                  std::string name) {
  CHECK(bytes >= 0, "storage {} is asked to hold {} bytes", name, bytes);
  return std::shared_ptr<Storage>(new Storage(context, bytes, category, std::move(name)));
}

Storage::~Storage() { release(); }

void Storage::materialise() {
  if (materialised()) return;
  data_ = context_.allocator().allocate(bytes_);
  context_.memory().allocated(category_, bytes_, name_);
}

void Storage::release() {
  if (!data_) return;
  context_.allocator().free(data_, bytes_);
  context_.memory().freed(category_, bytes_, name_);
  data_ = nullptr;
}

void Storage::throw_released(int64_t byte_offset) const {
  std::string part = name_;
  for (const auto& [offset, name] : parts_)
    if (offset <= byte_offset) part = name;
  throw Error(fmt::format(
      "{} (in storage {}) is read while its memory is released; gather its unit first, or use it inside its region",
      part, name_));
}

}  // namespace trencadis
