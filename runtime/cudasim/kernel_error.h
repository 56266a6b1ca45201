// What a kernel, or its launch, did wrong; and the place in the source where it did.
#pragma once

#include <source_location>
#include <string>

#include "runtime/check.h"

namespace trencadis::cudasim {

// Where a barrier, a shuffle or an access is written. A function that wants to know has a last parameter
// `Place place = Place::current()`, which the compiler fills in at the call.
using Place = std::source_location;

// The text names the kernel, block, thread, file and line, and what to do.
struct KernelError : Error {
  using Error::Error;
};

bool same_place(const Place& a, const Place& b);
// "matmul.cu:87": the file without its folders.
std::string to_string(const Place& place);

}  // namespace trencadis::cudasim
