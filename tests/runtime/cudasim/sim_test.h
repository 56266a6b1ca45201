// What the tests of the simulator share: ok(), which throws for a CUDA error, and a schedule for the length of a scope.
//
// Include project headers before this one: check.h and doctest both have a macro CHECK, and a test wants doctest's.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "runtime/check.h"
#include "runtime/cudasim/executor.h"

namespace trencadis::test {

inline void ok(cudaError_t status) {
  CHECK(status == cudaSuccess, "{}: {}", cudaGetErrorName(status), cudaGetErrorString(status));
}

struct WithSchedule {
  explicit WithSchedule(const std::string& name) : before(cudasim::schedule()) {
    cudasim::set_schedule(cudasim::Schedule::parse(name));
  }
  ~WithSchedule() { cudasim::set_schedule(before); }
  WithSchedule(const WithSchedule&) = delete;
  WithSchedule& operator=(const WithSchedule&) = delete;
  cudasim::Schedule before;
};

}  // namespace trencadis::test

#undef CHECK
#include <doctest/doctest.h>
