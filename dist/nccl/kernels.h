// The little arithmetic that NCCL leaves to its caller, as kernels on a stream.
#pragma once

#include <cuda_runtime_api.h>

#include "runtime/view.h"

namespace trencadis {

// y_i = y_i + x_i, for every type that is reduced; bf16 is added in f32 and rounded.
void add_on_stream(View y, ConstView x, cudaStream_t stream);

// NCCL's maximum of floats drops a NaN. Whole numbers in the same order do not: key(a) < key(b) exactly when a < b, and
// the key of every NaN is larger than all others. f32 and bf16 have i32 keys, f64 has i64. keys may be values itself,
// if the elements are of one size.
DType key_type(DType dtype);
void keys_of_values(View keys, ConstView values, cudaStream_t stream);
void values_of_keys(View values, ConstView keys, cudaStream_t stream);

}  // namespace trencadis
