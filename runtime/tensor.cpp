#include "runtime/tensor.h"

#include "runtime/context.h"

namespace trencadis {

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t size : shape) {
    CHECK(size >= 0, "shape {} has a negative size", to_string(shape));
    CHECK(!__builtin_mul_overflow(count, size, &count), "shape {} has more than 2^63 elements", to_string(shape));
  }
  return count;
}

std::string to_string(const Shape& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

Tensor::Tensor(std::shared_ptr<Storage> storage, int64_t offset, Shape shape, DType dtype)
    : storage_(std::move(storage)),
      offset_(offset),
      shape_(std::move(shape)),
      size_(element_count(shape_)),
      dtype_(dtype) {
  CHECK(offset >= 0 && (offset + size_) * size_of(dtype) <= storage_->bytes(),
        "a tensor of shape {} at element {} does not fit storage {} of {} bytes", to_string(shape_), offset,
        storage_->name(), storage_->bytes());
}

Tensor Tensor::empty(Context& context, Shape shape, DType dtype, MemoryCategory category, std::string name) {
  const int64_t bytes = element_count(shape) * size_of(dtype);
  return Tensor(Storage::create(context, bytes, category, std::move(name)), 0, std::move(shape), dtype);
}

Tensor Tensor::zeros(Context& context, Shape shape, DType dtype, MemoryCategory category, std::string name) {
  Tensor t = empty(context, std::move(shape), dtype, category, std::move(name));
  context.kernels().zero(t);
  return t;
}

namespace {
template <typename T>
Tensor from_host(Context& context, const std::vector<T>& values, Shape shape, MemoryCategory category) {
  Tensor t = Tensor::empty(context, std::move(shape), dtype_of<T>(), category);
  CHECK(t.size() == static_cast<int64_t>(values.size()), "{} values for a tensor of shape {}", values.size(),
        to_string(t.shape()));
  context.copy_from_host(t.view(), values.data());
  return t;
}
}  // namespace

Tensor Tensor::from(Context& context, const std::vector<float>& values, Shape shape, MemoryCategory category) {
  return from_host(context, values, std::move(shape), category);
}

Tensor Tensor::from(Context& context, const std::vector<int32_t>& values, Shape shape, MemoryCategory category) {
  return from_host(context, values, std::move(shape), category);
}

int64_t Tensor::dim(int64_t i) const {
  const int64_t rank = static_cast<int64_t>(shape_.size());
  const int64_t at = i < 0 ? i + rank : i;
  CHECK(at >= 0 && at < rank, "dimension {} of a tensor of shape {}", i, to_string(shape_));
  return shape_[static_cast<size_t>(at)];
}

Tensor Tensor::reshape(Shape shape) const {
  CHECK(element_count(shape) == size_, "reshape of {} to {} changes the number of elements", to_string(shape_),
        to_string(shape));
  return Tensor(storage_, offset_, std::move(shape), dtype_);
}

Tensor Tensor::flat_slice(int64_t first, int64_t count) const {
  CHECK(first >= 0 && count >= 0 && first + count <= size_, "slice [{}, {}) of a tensor of {} elements", first,
        first + count, size_);
  return Tensor(storage_, offset_ + first, {count}, dtype_);
}

std::vector<float> Tensor::to_vector() const {
  std::vector<float> out(static_cast<size_t>(size_));
  if (dtype_ == DType::bf16) {
    std::vector<bf16> raw(out.size());
    context().copy_to_host(raw.data(), view());
    for (size_t i = 0; i < raw.size(); ++i) out[i] = static_cast<float>(raw[i]);
  } else {
    CHECK(dtype_ == DType::f32, "to_vector of a tensor of {}; use to_ints", name_of(dtype_));
    context().copy_to_host(out.data(), view());
  }
  return out;
}

std::vector<int32_t> Tensor::to_ints() const {
  CHECK(dtype_ == DType::i32, "to_ints of a tensor of {}", name_of(dtype_));
  std::vector<int32_t> out(static_cast<size_t>(size_));
  context().copy_to_host(out.data(), view());
  return out;
}

float Tensor::item() const {
  CHECK(size_ == 1, "item() of a tensor of shape {}", to_string(shape_));
  return to_vector()[0];
}

}  // namespace trencadis
