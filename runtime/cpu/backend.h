// The CPU as a device.
#pragma once

#include <memory>

#include "runtime/context.h"

namespace trencadis {

struct CpuOptions {
  int threads = 1;
  // For tests of promise 1: every block starts this many bytes after a multiple of 64 (a multiple of 4, below 64).
  int misalign = 0;
  // For tests: blocks arrive filled with NaN and are filled with NaN again when freed.
  bool poison = false;
};

std::unique_ptr<Backend> make_cpu_backend(CpuOptions options = {});

}  // namespace trencadis
