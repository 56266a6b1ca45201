// Tensor: a value made of a storage, an offset, a shape and an element type. Contiguous, row-major; knows no gradient.
// Copies share the storage. A default-constructed tensor is undefined (defined() == false).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/storage.h"
#include "runtime/view.h"

namespace trencadis {

using Shape = std::vector<int64_t>;

// The product of the sizes; throws Error on a negative size or when it does not fit 63 bits.
int64_t element_count(const Shape& shape);
std::string to_string(const Shape& shape);  // "(2, 3)"

class Tensor {
 public:
  Tensor() = default;
  // A view of `storage` from element `offset` on (in elements of dtype).
  Tensor(std::shared_ptr<Storage> storage, int64_t offset, Shape shape, DType dtype = DType::f32);

  // Fresh memory with undefined contents.
  static Tensor empty(Context& context, Shape shape, DType dtype = DType::f32,
                      MemoryCategory category = MemoryCategory::activation, std::string name = "tensor");
  static Tensor zeros(Context& context, Shape shape, DType dtype = DType::f32,
                      MemoryCategory category = MemoryCategory::activation, std::string name = "tensor");
  // Copies host values to the device.
  static Tensor from(Context& context, const std::vector<float>& values, Shape shape,
                     MemoryCategory category = MemoryCategory::activation);
  static Tensor from(Context& context, const std::vector<int32_t>& values, Shape shape,
                     MemoryCategory category = MemoryCategory::activation);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int64_t i) const;  // size of dimension i; negative counts from the end
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  int64_t offset() const { return offset_; }  // elements
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  Context& context() const { return storage_->context(); }

  // The same elements in another shape; the element counts must agree.
  Tensor reshape(Shape shape) const;
  // Elements [first, first + count) as a flat tensor.
  Tensor flat_slice(int64_t first, int64_t count) const;

  // Both throw Error if the storage is released.
  View view() const { return {storage_->data(offset_ * size_of(dtype_)), dtype_, size_}; }
  operator View() const { return view(); }
  operator ConstView() const { return view(); }
  template <typename T>
  T* data() const {
    return view().as<T>();
  }

  // Waits for the compute stream and copies the values to the host (f32 and bf16 as float; i32 by to_ints).
  std::vector<float> to_vector() const;
  std::vector<int32_t> to_ints() const;
  float item() const;  // the only element

 private:
  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;
  Shape shape_;
  int64_t size_ = 0;
  DType dtype_ = DType::f32;
};

}  // namespace trencadis
